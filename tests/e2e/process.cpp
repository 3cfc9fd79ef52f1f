#include "e2e/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace motley::e2e {
namespace {

// Called in the child, after fork.
[[noreturn]] void execute(const std::vector<std::string>& words, const Variables& variables,
                          const std::string& program = MOTLEY_PROGRAM) {
  for (char** entry = environ; *entry != nullptr;) {
    const std::string name = std::string(*entry).substr(0, std::string(*entry).find('='));
    if (name.rfind("MOTLEY_", 0) == 0) {
      unsetenv(name.c_str());
      entry = environ;
    } else {
      ++entry;
    }
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  _exit(127);
}

int status_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string drain(int descriptor, const std::function<void()>& on_first) {
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = ::read(descriptor, buffer, sizeof buffer)) > 0;) {
    if (text.empty() && on_first) on_first();
    text.append(buffer, static_cast<size_t>(count));
  }
  ::close(descriptor);
  return text;
}

}  // namespace

Outcome run(const std::vector<std::string>& words, const std::string& input,
            const Variables& variables) {
  RunOptions options;
  options.input = input;
  options.variables = variables;
  return run_with(words, options);
}

Outcome run_with(const std::vector<std::string>& words, const RunOptions& options) {
  const TemporaryFolder folder;
  const std::string in_path = folder.write("in", options.input);
  int out[2];
  EXPECT_EQ(pipe(out), 0);
  const std::string err_path = folder.write("err", "");
  const pid_t child = fork();
  if (child == 0) {
    dup2(open(in_path.c_str(), O_RDONLY), 0);
    dup2(out[1], 1);
    dup2(open(err_path.c_str(), O_WRONLY), 2);
    ::close(out[0]);
    ::close(out[1]);
    execute(words, options.variables, options.program.empty() ? MOTLEY_PROGRAM : options.program);
  }
  ::close(out[1]);
  Outcome outcome;
  outcome.out = drain(out[0], [&] {
    if (options.on_first_output) options.on_first_output(child);
  });
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  outcome.exit = status_of(status);
  outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  outcome.peak_bytes = usage.ru_maxrss * 1024;
  outcome.err = read_file(err_path);
  return outcome;
}

Terminal::Terminal(const std::vector<std::string>& words, const Variables& variables) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = 80;
  process_ = forkpty(&master_, nullptr, nullptr, &size);
  if (process_ == 0) {
    setenv("TERM", "xterm", 1);
    execute(words, variables);
  }
}

Terminal::~Terminal() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  if (master_ >= 0) ::close(master_);
}

void Terminal::type(const std::string& text) {
  EXPECT_EQ(::write(master_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

bool Terminal::read_some(double seconds) {
  pollfd waiting{master_, POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
  char buffer[4096];
  const ssize_t count = ::read(master_, buffer, sizeof buffer);
  if (count <= 0) return false;
  screen_.append(buffer, static_cast<size_t>(count));
  return true;
}

bool Terminal::wait_for(const std::string& text, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const size_t found = screen_.find(text, seen_);
    if (found != std::string::npos) {
      seen_ = found + text.size();
      return true;
    }
    const std::chrono::duration<double> left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0 || !read_some(left.count())) return false;
  }
}

int Terminal::finish(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    int status = 0;
    if (waitpid(process_, &status, WNOHANG) == process_) {
      while (read_some(0)) {
      }
      process_ = -1;
      return status_of(status);
    }
    (void)read_some(0.05);
  }
  return -1;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "motley-e2e-XXXXXX").string();
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& content) const {
  const std::string path = path_ + "/" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string pocket_model() {
  return std::string(MOTLEY_SOURCE_DIR) + "/models/pocket";
}

bool exists(const std::string& path) {
  return std::filesystem::exists(path);
}

}  // namespace motley::e2e
