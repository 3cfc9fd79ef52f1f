// The chat: reads lines, answers them, keeps the conversation.
//
// Each turn renders the whole conversation with the model's template; the engine decides how much
// of its state can be kept (with --verbose: says what and why).
// Thread rule: the main thread.
#pragma once

#include "base/status.h"
#include "cli/console.h"
#include "cli/run_options.h"

namespace motley {

// Returns the exit status once the user quits; `drafts` takes what they did.
Result<int> run_chat(Console& console, const RunModel& model, const ChatOptions& options,
                     const SessionOptions& session_options, DraftStats* drafts);

}  // namespace motley
