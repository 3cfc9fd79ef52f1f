#include "cli/chat_loop.h"

#include <fmt/format.h>

#include "base/log.h"
#include "cli/chat_command.h"
#include "cli/conversation.h"
#include "cli/json_text.h"
#include "cli/line_editor.h"
#include "cli/run_report.h"
#include "io/file_writer.h"

namespace motley {
namespace {

class Chat {
 public:
  Chat(Console& console, const RunModel& model, const ChatOptions& options,
       GenerationSession session)
      : console_(console),
        model_(model),
        options_(options),
        session_(std::move(session)),
        conversation_(options.system),
        editor_(default_history_file(), !console.out_is_terminal(), interrupt_) {}

  int run() {
    note(fmt::format("{}, {}; /help lists the commands", model_.path,
                     model_.engine->numerics_name()));
    std::string text;
    while (read_message(&text)) {
      if (text.find_first_not_of(" \t\n") == std::string::npos) continue;
      editor_.remember(text);
      if (!is_chat_command(text)) {
        answer(text);
      } else if (!obey(text)) {
        break;
      }
      if (!console_.out_status().is_ok()) break;
    }
    return kExitOk;
  }

  // Of all answers.
  const DraftStats& drafts() const { return totals_.drafts; }

 private:
  void note(const std::string& text) {
    console_.err(console_.styled(Console::Style::kNote, text, false) + "\n");
  }

  std::string prompt(bool first_line) const {
    const std::string mark = first_line ? ">" : ".";
    const std::string styled =
        console_.styled(Console::Style::kPrompt, mark, console_.out_is_terminal());
    if (styled == mark) return mark + " ";
    // The editor must not count the colour codes: \1 goes around each. It drops codes at the very
    // end, so the space comes last.
    const size_t at = styled.find(mark);
    return "\1" + styled.substr(0, at) + "\1" + mark + "\1" + styled.substr(at + 1) + "\1 ";
  }

  // False when the user quits. Lines that end in a backslash are joined.
  bool read_message(std::string* text) {
    text->clear();
    bool first_line = true;
    bool was_interrupted = false;
    for (;;) {
      InputLine line = editor_.read(prompt(first_line));
      if (line.event == LineEvent::kInterrupted) {
        interrupt_.clear();
        if (was_interrupted) return false;
        was_interrupted = first_line = true;
        text->clear();
        console_.err("\n");
        note("Ctrl-C again or Ctrl-D quits");
        continue;
      }
      if (line.event == LineEvent::kEnd) {
        console_.err("\n");
        return false;
      }
      was_interrupted = false;
      const bool goes_on = line.text.ends_with('\\');
      if (goes_on) line.text.back() = '\n';
      *text += line.text;
      if (!goes_on) return true;
      first_line = false;
    }
  }

  void show_error(const Status& status) {
    console_.error(escape_control_characters(status.message()));
  }

  void answer(const std::string& text) {
    conversation_.add_user(text);
    const Status status = try_answer();
    interrupt_.clear();
    if (status.is_ok()) return;
    conversation_.drop_last();
    show_error(status);
  }

  Status try_answer() {
    MOTLEY_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                            conversation_.encode(*model_.text, options_.think));
    const auto show = [&](std::string_view piece) {
      console_.out(console_.out_is_terminal() ? text_for_terminal(piece) : std::string(piece));
    };
    MOTLEY_ASSIGN_OR_RETURN(const GenerationOutcome outcome,
                            session_.generate(tokens, interrupt_, show));
    if (!outcome.text.ends_with('\n')) console_.out("\n");
    if (outcome.reason == FinishReason::kCancelled) note("(stopped)");
    if (outcome.reason == FinishReason::kLength) note("(ended by -n)");
    if (outcome.reason == FinishReason::kContextFull) note("(the context is full; /clear)");
    if (options_.verbose) note(sync_text(outcome));
    note(stats_line(outcome.stats, model_.engine->numerics_name()));
    if (outcome.stats.drafts.steps() > 0) console_.err(draft_lines(outcome));
    console_.err(stream_text(*model_.engine, outcome.stream));
    conversation_.add_assistant(outcome.text);
    add_totals(outcome);
    return Status::ok();
  }

  static std::string sync_text(const GenerationOutcome& outcome) {
    return fmt::format("{}: {} tokens kept, {} computed ({})",
                       outcome.sync.decision == SyncDecision::kExtend ? "extend" : "rebuild",
                       outcome.sync.reused_tokens, outcome.sync.pending_tokens,
                       outcome.sync.reason);
  }

  void add_totals(const GenerationOutcome& outcome) {
    ++answers_;
    context_tokens_ = outcome.prompt_tokens + outcome.stats.generated_tokens;
    totals_.reused_tokens += outcome.stats.reused_tokens;
    totals_.prompt_tokens += outcome.stats.prompt_tokens;
    totals_.generated_tokens += outcome.stats.generated_tokens;
    totals_.prefill_s += outcome.stats.prefill_s;
    totals_.decode_s += outcome.stats.decode_s;
    totals_.drafts += outcome.stats.drafts;
  }

  // False for /quit.
  bool obey(const std::string& line) {
    const Result<ChatCommand> command = parse_chat_command(line);
    if (!command.is_ok()) {
      show_error(command.status());
      return true;
    }
    switch (command->kind) {
      case ChatCommandKind::kHelp:
        console_.err(chat_command_help());
        break;
      case ChatCommandKind::kClear:
        conversation_.clear();
        note("the conversation is forgotten");
        break;
      case ChatCommandKind::kSystem:
        set_system(command->argument);
        break;
      case ChatCommandKind::kSave:
        save(command->argument);
        break;
      case ChatCommandKind::kStats:
        show_stats();
        break;
      case ChatCommandKind::kQuit:
        return false;
    }
    return true;
  }

  void set_system(const std::string& text) {
    if (!text.empty()) conversation_.set_system(text);
    note(conversation_.system().empty() ? "no system message"
                                        : "system message: " + conversation_.system());
  }

  void save(const std::string& path) {
    const std::string json = dump_json(conversation_.messages());
    const Status status = write_file(model_.engine->context().faults, path,
                                     std::as_bytes(std::span<const char>(json)));
    if (status.is_ok()) {
      note(fmt::format("{} messages in {}", conversation_.messages().size(), path));
    } else {
      show_error(status);
    }
  }

  void show_stats() {
    note(fmt::format("{} answers, {} of {} tokens of context in use, {} tokens kept between turns",
                     answers_, context_tokens_, model_.engine->context_length(),
                     totals_.reused_tokens));
    note(stats_line(totals_, model_.engine->numerics_name()));
    if (totals_.drafts.steps() > 0) note(draft_text(totals_.drafts));
  }

  Console& console_;
  const RunModel& model_;
  const ChatOptions& options_;
  GenerationSession session_;
  Conversation conversation_;
  InterruptHandler interrupt_;
  LineEditor editor_;
  int64_t answers_ = 0;
  int64_t context_tokens_ = 0;
  GenerationStats totals_;
};

}  // namespace

Result<int> run_chat(Console& console, const RunModel& model, const ChatOptions& options,
                     const SessionOptions& session_options, DraftStats* drafts) {
  // A model without a usable template is refused before the first line is typed.
  Conversation probe(options.system);
  probe.add_user("hello");
  MOTLEY_RETURN_IF_ERROR(probe.encode(*model.text, options.think).status());
  MOTLEY_ASSIGN_OR_RETURN(GenerationSession session,
                          GenerationSession::create(*model.engine, *model.text, session_options));
  Chat chat(console, model, options, std::move(session));
  const int status = chat.run();
  *drafts += chat.drafts();
  return status;
}

}  // namespace motley
