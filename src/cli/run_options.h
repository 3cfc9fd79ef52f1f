// What `motley run` was asked to do, and what it needs to do it.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/owned_context.h"
#include "cli/generation_session.h"
#include "cli/option_spec.h"
#include "engine/engine.h"
#include "engine/route_trace_recorder.h"
#include "text/text_model.h"

namespace motley {

std::vector<OptionSpec> run_option_table();
// Rules between the options of run.
Status check_run_options(const Invocation& invocation);

// The chat side of the options.
struct ChatOptions {
  std::string system;  // empty: none
  std::optional<bool> think;
  bool raw = false;
  bool json = false;
  bool verbose = false;
};
ChatOptions chat_options(const OptionValues& values);

// -p, -f, or standard input when that is no terminal; nothing: chat.
Result<std::optional<std::string>> one_shot_prompt(const Invocation& invocation);

// A model ready to generate. Members in order of dependency.
struct RunModel {
  std::string path;
  std::unique_ptr<OwnedContext> context;
  std::unique_ptr<TextModel> text;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<RouteTraceRecorder> routes;  // null: nobody asked for them
  double load_s = 0;
  std::string draft_records;  // file of the acceptance of drafts in earlier runs; empty: none

  // After the last step: keeps what was learned and recorded. `drafts` of all answers: kept as
  // well, unless they are so bad that an alarm is given.
  Status finish(const DraftStats& drafts) const;
};
Result<RunModel> load_run_model(const OptionValues& values);
Result<SessionOptions> session_options(const OptionValues& values, const RunModel& model);

}  // namespace motley
