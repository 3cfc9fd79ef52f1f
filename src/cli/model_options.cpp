#include "cli/model_options.h"

#include <fmt/format.h>

#include "base/install_paths.h"
#include "base/thread_pool.h"
#include "cli/byte_progress.h"
#include "cli/common_options.h"

namespace motley {

using namespace options;

ReadBackendKind read_backend_kind(std::string_view name) {
  if (name == "uring") return ReadBackendKind::kUring;
  return name == "pread" ? ReadBackendKind::kPread : ReadBackendKind::kAuto;
}

std::optional<MemorySize> parse_memory_size(std::string_view text) {
  if (text.find_first_of("eE") != std::string_view::npos) return std::nullopt;
  if (text.ends_with('%')) {
    const auto percent = parse_real(text.substr(0, text.size() - 1));
    if (!percent || !(*percent > 0 && *percent <= 100)) return std::nullopt;
    return MemorySize{.share = *percent * 0.01};
  }
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes < 1) return std::nullopt;
  return MemorySize{.bytes = *bytes};
}

std::optional<DraftChoice> parse_draft(std::string_view text) {
  if (text == "auto") return DraftChoice{.most = kAutoDrafts, .is_auto = true};
  if (text.size() != 1 || text[0] < '0' || text[0] > '0' + kMostDrafts) return std::nullopt;
  return DraftChoice{.most = text[0] - '0'};
}

DraftChoice draft_choice(const OptionValues& values) {
  return *parse_draft(values.text(kDraft));
}

void set_drafts(const DraftChoice& choice, EngineOptions* engine) {
  engine->drafts = choice.most > 0;
  engine->draft_tokens = choice.most;
}

Status check_draft_option(const OptionValues& values) {
  if (parse_draft(values.text(kDraft))) return Status::ok();
  return invalid_argument(fmt::format("{} is a number from 0 to {} or auto, not '{}'",
                                      values.source(kDraft), kMostDrafts, values.text(kDraft)));
}

std::vector<OptionSpec> engine_option_table() {
  return {kThreads,     kNumeric,     kCpu,          kReference,  kCacheFormat, kDelta,  kContext,
          kStateBudget, kMemory,      kExpertCache,  kPacked,     kCheck,       kIo,     kLookAhead,
          kExpertsUsed, kExpertSlots, kPrefillChunk, kNoPopulate, kPocket,      kVerbose};
}

EngineOptions engine_options(const OptionValues& values, std::string model) {
  EngineOptions engine = shared_engine_options(values, std::move(model));
  engine.profile =
      values.text(kNumeric) == "exact" ? NumericProfile::kExact : NumericProfile::kFast;
  engine.reference = values.flag(kReference);
  return engine;
}

EngineOptions shared_engine_options(const OptionValues& values, std::string model) {
  EngineOptions engine;
  engine.model = std::move(model);
  set_plan_options(values, &engine);
  if (values.given(kExpertSlots)) {
    engine.expert_wave_slots = static_cast<int>(values.integer(kExpertSlots));
  }
  engine.populate = !values.flag(kNoPopulate);
  engine.look_ahead = values.text(kLookAhead) == "on";
  if (values.given(kExpertsUsed)) {
    engine.experts_per_token = static_cast<int>(values.integer(kExpertsUsed));
  }
  engine.packed = values.texts(kPacked);
  engine.check = values.flag(kCheck);
  return engine;
}

void set_plan_options(const OptionValues& values, EngineOptions* engine) {
  if (values.given(kCpu)) engine->cpu = values.text(kCpu);
  if (values.given(kCacheFormat)) {
    engine->cache_dtype = values.text(kCacheFormat) == "f32" ? DType::kF32 : DType::kBf16;
  }
  if (values.text(kDelta) == "chunked") engine->delta_form = DeltaForm::kChunked;
  if (values.given(kContext)) engine->context_length = values.integer(kContext);
  if (values.given(kStateBudget)) engine->state_budget_bytes = values.bytes(kStateBudget);
  if (values.given(kMemory)) engine->memory = *parse_memory_size(values.text(kMemory));
  if (values.given(kExpertCache)) {
    engine->expert_cache = *parse_memory_size(values.text(kExpertCache));
  }
  engine->io = read_backend_kind(values.text(kIo));
  engine->step_rows = values.integer(kPrefillChunk);
}

ThreadPoolOptions thread_options(const OptionValues& values) {
  ThreadPoolOptions threads;
  if (values.given(kThreads)) threads.threads = static_cast<int>(values.integer(kThreads));
  return threads;
}

LogOptions log_options(const OptionValues& values) {
  LogOptions log;
  log.level = values.flag(kVerbose) ? LogLevel::kInfo : LogLevel::kWarning;
  return log;
}

Status check_memory_options(const OptionValues& values) {
  for (const OptionSpec* option : {&kMemory, &kExpertCache}) {
    if (!values.given(*option) || parse_memory_size(values.text(*option))) continue;
    return invalid_argument(
        fmt::format("{} is a size such as 8GiB or 500MB, or a share such as 60%, not '{}'",
                    values.source(*option), values.text(*option)));
  }
  return Status::ok();
}

Status check_engine_options(const OptionValues& values) {
  MOTLEY_RETURN_IF_ERROR(check_memory_options(values));
  if (values.flag(kCheck) && !values.given(kPacked)) {
    return invalid_argument(
        fmt::format("{} needs --packed: a checkpoint has no checksums, \"motley pack\" makes them",
                    values.source(kCheck)));
  }
  if (!values.flag(kReference)) return Status::ok();
  for (const OptionSpec* option : {&kCpu, &kCacheFormat, &kNumeric}) {
    if (!values.given(*option)) continue;
    return invalid_argument(
        fmt::format("{} has no effect with {}", values.source(*option), values.source(kReference)));
  }
  return Status::ok();
}

Result<std::string> find_model(const OptionValues& values) {
  if (const auto model = values.argument("MODEL")) return *model;
  if (values.given(kPocket)) return values.text(kPocket);
  Result<std::string> pocket = find_shared_file("models/pocket");
  if (!pocket.is_ok()) return pocket.status().with_context("no MODEL is named");
  return pocket;
}

Result<std::unique_ptr<RouteTraceRecorder>> route_recorder(const OptionValues& values,
                                                           const Engine& engine) {
  if (!values.given(kRecordRoutes)) return std::unique_ptr<RouteTraceRecorder>();
  MOTLEY_ASSIGN_OR_RETURN(RouteTraceRecorder recorder,
                          RouteTraceRecorder::create(engine.context().faults,
                                                     values.text(kRecordRoutes), engine.spec()));
  return std::make_unique<RouteTraceRecorder>(std::move(recorder));
}

Result<std::unique_ptr<Engine>> load_engine(Context& context, EngineOptions options) {
  ByteProgress progress(context.clock, "loading");
  options.progress = [&](int64_t done, int64_t total) { progress(done, total); };
  return Engine::load(context, std::move(options));
}

}  // namespace motley
