// motley run: one answer, or a chat.
#include <fmt/format.h>

#include "cli/chat_loop.h"
#include "cli/console.h"
#include "cli/conversation.h"
#include "cli/run_options.h"
#include "cli/run_report.h"
#include "cli/verbs.h"

namespace motley {
namespace {

Result<std::vector<TokenId>> prompt_tokens(const RunModel& model, const ChatOptions& options,
                                           const std::string& prompt) {
  if (options.raw) return model.text->encode_prompt(prompt, /*rendered=*/false);
  Conversation conversation(options.system);
  conversation.add_user(prompt);
  return conversation.encode(*model.text, options.think);
}

int exit_status(const GenerationOutcome& outcome) {
  return outcome.reason == FinishReason::kCancelled ? kExitInterrupted : kExitOk;
}

Result<int> answer_once(Console& console, const RunModel& model, const ChatOptions& options,
                        const SessionOptions& session_options, const std::string& prompt,
                        DraftStats* drafts) {
  MOTLEY_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, prompt_tokens(model, options, prompt));
  MOTLEY_ASSIGN_OR_RETURN(GenerationSession session,
                          GenerationSession::create(*model.engine, *model.text, session_options));
  const InterruptHandler interrupt;
  const auto show = [&](std::string_view text) {
    if (options.json) return;
    console.out(console.out_is_terminal() ? text_for_terminal(text) : std::string(text));
  };
  MOTLEY_ASSIGN_OR_RETURN(const GenerationOutcome outcome,
                          session.generate(tokens, interrupt, show));
  *drafts += outcome.stats.drafts;
  if (options.json) {
    console.out(run_json(model, session_options, outcome));
  } else if (!outcome.text.ends_with('\n')) {
    if (console.out_is_terminal())
      console.out("\n");
    else if (console.outputs_are_one())
      console.err("\n");
  }
  const std::string line = stats_line(outcome.stats, model.engine->numerics_name());
  console.err(console.styled(Console::Style::kNote, line, false) + "\n");
  if (session_options.drafts > 0) console.err(draft_lines(outcome));
  console.err(stream_text(*model.engine, outcome.stream));
  return exit_status(outcome);
}

Result<int> run_run(Invocation& invocation) {
  const ChatOptions chat = chat_options(invocation.options);
  MOTLEY_ASSIGN_OR_RETURN(const std::optional<std::string> prompt, one_shot_prompt(invocation));
  MOTLEY_ASSIGN_OR_RETURN(const RunModel model, load_run_model(invocation.options));
  MOTLEY_ASSIGN_OR_RETURN(const SessionOptions session, session_options(invocation.options, model));
  DraftStats drafts;
  const Result<int> status =
      prompt ? answer_once(invocation.console, model, chat, session, *prompt, &drafts)
             : run_chat(invocation.console, model, chat, session, &drafts);
  MOTLEY_RETURN_IF_ERROR(model.finish(drafts));
  return status;
}

}  // namespace

VerbSpec run_verb() {
  return {
      .name = "run",
      .summary = "answer a prompt, or chat when standard input is a terminal",
      .description =
          "Runs a model on one prompt (-p, -f, or standard input when it is no terminal), or "
          "starts a chat. Text is printed as it is generated; only generated text goes to "
          "standard output, speeds and notes go to standard error.\n\n"
          "Ctrl-C stops the answer, a second one ends the program. In the chat, /help lists the "
          "commands, a line that ends in a backslash goes on in the next one, and Ctrl-D quits.",
      .arguments = {{.name = "MODEL",
                     .type = OptionType::kFolder,
                     .help = "model directory (default: the pocket model, see --pocket)",
                     .required = false}},
      .options = run_option_table(),
      .examples = {{"motley run", "chat with the pocket model"},
                   {"motley run models/pocket -p 'Who are you?'", "one answer"},
                   {"motley run models/pocket -f notes.txt -n 200 --temp 0.7 --seed 1",
                    "the prompt from a file, sampled, at most 200 tokens"},
                   {"git diff | motley run models/pocket --system 'Describe this change.'",
                    "the prompt from standard input"},
                   {"motley run models/pocket --raw -p 'Once upon' --json --logprobs 3",
                    "no template; one JSON object with token probabilities"}},
      .check = check_run_options,
      .run = run_run};
}

}  // namespace motley
