// From options to what the engine takes.
// Thread rule: pure functions, except for the file system.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/thread_pool.h"
#include "cli/option_spec.h"
#include "cli/option_values.h"
#include "engine/engine.h"
#include "engine/route_trace_recorder.h"
#include "engine/scheduler.h"

namespace motley {

// Of --draft.
struct DraftChoice {
  int most = 0;          // drafts of a step
  bool is_auto = false;  // as many of them as pay
};
constexpr int kAutoDrafts = 5;  // rarely do more pay, and each is memory
std::optional<DraftChoice> parse_draft(std::string_view text);
// REQUIRES: check_draft_option().
DraftChoice draft_choice(const OptionValues& values);
void set_drafts(const DraftChoice& choice, EngineOptions* engine);
Status check_draft_option(const OptionValues& values);

// The options that the functions below read.
std::vector<OptionSpec> engine_option_table();

// Everything but progress and drafts. REQUIRES: the verb's table has engine_option_table().
EngineOptions engine_options(const OptionValues& values, std::string model);
// The same without the profile and --reference, for a verb that sets them itself.
EngineOptions shared_engine_options(const OptionValues& values, std::string model);

// The part of it that changes memory and speed: instruction set, cache, delta form, context,
// budgets, reads and chunk.
void set_plan_options(const OptionValues& values, EngineOptions* engine);

// A size as parse_bytes() reads it, without exponents and at least a byte, or a share such as "60%"
// of at most 100; nullopt for anything else.
std::optional<MemorySize> parse_memory_size(std::string_view text);

// Threads and log level.
ThreadPoolOptions thread_options(const OptionValues& values);
LogOptions log_options(const OptionValues& values);

// That --memory and --expert-cache are sizes or shares.
Status check_memory_options(const OptionValues& values);

ReadBackendKind read_backend_kind(std::string_view name);  // of --io

// Rules between engine options; a verb's check() calls it.
Status check_engine_options(const OptionValues& values);

// MODEL, or the pocket model when there is none. kNotFound names the places that were looked at.
Result<std::string> find_model(const OptionValues& values);

// For --record-routes; null without it. REQUIRES: the verb's table has kRecordRoutes.
Result<std::unique_ptr<RouteTraceRecorder>> route_recorder(const OptionValues& values,
                                                           const Engine& engine);

// Loads with a progress bar on standard error.
Result<std::unique_ptr<Engine>> load_engine(Context& context, EngineOptions options);

}  // namespace motley
