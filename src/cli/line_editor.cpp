#include "cli/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <filesystem>

namespace motley {
namespace {

constexpr int kHistoryLines = 1000;

void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX < 4) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  HistEvent event{};
  std::string history_file;
  std::string prompt;
  const InterruptHandler* interrupt = nullptr;
  sigset_t waiting_mask{};  // signals let in while waiting for a key, and at no other moment

  // The state behind an editor that libedit hands to a callback.
  static State& of(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<State*>(data);
  }
  // \1 around the parts that take no column.
  static char* prompt_text(EditLine* editor) { return of(editor).prompt.data(); }
  static int read_key(EditLine* editor, wchar_t* key);
};

// Waits for one character. SIGINT is blocked but for the wait itself, so a Ctrl-C that comes just
// before it is seen too.
int LineEditor::State::read_key(EditLine* editor, wchar_t* key) {
  State& state = of(editor);
  std::mbstate_t decoding{};
  for (;;) {
    if (state.interrupt->interrupted()) {
      errno = EINTR;
      return -1;
    }
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (ppoll(&input, 1, nullptr, &state.waiting_mask) < 0) {
      if (errno == EINTR && !state.interrupt->interrupted()) continue;  // another signal
      return -1;
    }
    char byte = 0;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count <= 0) return static_cast<int>(count);
    const size_t used = std::mbrtowc(key, &byte, 1, &decoding);
    if (used == static_cast<size_t>(-1)) decoding = {};  // no UTF-8: dropped
    if (used <= 1) return 1;
  }
}

namespace {

// Blocks SIGINT while alive and tells the mask to wait with.
class BlockedInterrupt {
 public:
  explicit BlockedInterrupt(sigset_t* waiting_mask) {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &former_);
    *waiting_mask = former_;
    sigdelset(waiting_mask, SIGINT);
  }
  ~BlockedInterrupt() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  BlockedInterrupt(const BlockedInterrupt&) = delete;
  BlockedInterrupt& operator=(const BlockedInterrupt&) = delete;

 private:
  sigset_t former_{};
};

}  // namespace

LineEditor::LineEditor(const std::string& history_file, bool to_stderr,
                       const InterruptHandler& interrupt)
    : state_(std::make_unique<State>()) {
  use_utf8_locale();
  State& state = *state_;
  state.interrupt = &interrupt;
  state.history_file = history_file;
  state.editor = el_init("motley", stdin, to_stderr ? stderr : stdout, stderr);
  state.history = history_init();
  history(state.history, &state.event, H_SETSIZE, kHistoryLines);
  history(state.history, &state.event, H_SETUNIQUE, 1);
  if (!history_file.empty()) {
    history(state.history, &state.event, H_LOAD, history_file.c_str());
  }
  el_set(state.editor, EL_CLIENTDATA, &state);
  el_set(state.editor, EL_PROMPT_ESC, State::prompt_text, '\1');
  el_set(state.editor, EL_GETCFN, State::read_key);
  el_set(state.editor, EL_EDITOR, "emacs");
  el_set(state.editor, EL_HIST, history, state.history);
  el_set(state.editor, EL_SIGNAL, 0);
  el_set(state.editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(state.editor, nullptr);  // ~/.editrc
}

LineEditor::~LineEditor() {
  history_end(state_->history);
  el_end(state_->editor);
}

InputLine LineEditor::read(const std::string& prompt) {
  state_->prompt = prompt;
  const BlockedInterrupt blocked(&state_->waiting_mask);
  // Before the prompt shows, so that a Ctrl-D typed right after it is a key and not a line's end.
  el_set(state_->editor, EL_PREP_TERM, 1);
  int count = 0;
  errno = 0;
  const char* line = el_gets(state_->editor, &count);
  if (line == nullptr || count <= 0) {
    return {state_->interrupt->interrupted() ? LineEvent::kInterrupted : LineEvent::kEnd, ""};
  }
  std::string text(line, static_cast<size_t>(count));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return {LineEvent::kLine, std::move(text)};
}

void LineEditor::remember(const std::string& text) {
  State& state = *state_;
  history(state.history, &state.event, H_ENTER, text.c_str());
  if (state.history_file.empty()) return;
  // Created with its mode, so that the text is at no moment readable by others.
  const int descriptor =
      ::open(state.history_file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return;
  (void)::fchmod(descriptor, 0600);
  ::close(descriptor);
  history(state.history, &state.event, H_SAVE, state.history_file.c_str());
}

std::string default_history_file() {
  std::filesystem::path folder;
  const char* state_home = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state_home != nullptr && *state_home == '/') {
    folder = state_home;
  } else if (home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return "";
  }
  folder /= "motley";
  std::error_code error;
  const bool existed = std::filesystem::is_directory(folder, error);
  std::filesystem::create_directories(folder, error);
  if (error) return "";
  if (!existed) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  return (folder / "history").string();
}

}  // namespace motley
