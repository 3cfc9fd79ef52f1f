#include "engine/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/system_memory.h"

namespace motley {
namespace {

// The sequence whose state is planned for when no context is named. A resident model's state takes
// memory as it grows.
constexpr int64_t kPlannedTokens = 8192;

}  // namespace

StateFormat state_format_of(const EngineOptions& options) {
  StateFormat format;
  format.drafts = options.drafts;
  format.tentative_rows = options.draft_tokens > 0 ? options.draft_tokens + 1 : 0;
  format.chunked_delta = options.delta_form == DeltaForm::kChunked;
  if (options.reference) {
    format.kv = format.recurrent = DType::kF64;
  } else {
    const DType by_profile = options.profile == NumericProfile::kExact ? DType::kF32 : DType::kBf16;
    format.kv = options.cache_dtype.value_or(by_profile);
  }
  return format;
}

Result<int> limit_experts(int experts_per_token, ModelSpec* spec) {
  std::vector<MoeSpec*> blocks;
  const auto add = [&](LayerSpec& layer) {
    if (auto* moe = std::get_if<MoeSpec>(&layer.feed_forward)) blocks.push_back(moe);
  };
  for (LayerSpec& layer : spec->layers) add(layer);
  for (DraftSpec& draft : spec->drafts) add(draft.layer);
  if (blocks.empty()) {
    if (experts_per_token == 0) return 0;
    return invalid_argument("--experts has no effect: the model has none");
  }
  const int own = blocks.front()->experts_per_token;
  if (experts_per_token == 0) return own;
  for (MoeSpec* moe : blocks) {
    if (experts_per_token >= moe->experts_per_token) {
      return invalid_argument(fmt::format("{} experts per token wanted, the model's own are {}",
                                          experts_per_token, moe->experts_per_token));
    }
    moe->experts_per_token = experts_per_token;
  }
  return own;
}

std::string lossy_text(int experts_per_token, int own_experts_per_token) {
  return fmt::format(", LOSSY: {} of the model's {} experts a token", experts_per_token,
                     own_experts_per_token);
}

Result<int64_t> context_length_of(const EngineOptions& options, const ModelSpec& spec) {
  const int64_t wanted = options.context_length > 0 ? options.context_length : spec.context_length;
  if (wanted <= spec.context_length) return wanted;
  return invalid_argument(fmt::format("context of {} tokens wanted, the model was made for {}",
                                      wanted, spec.context_length));
}

Result<MemoryPlan> plan_engine_memory(const OpenedModel& opened, const EngineOptions& options) {
  MOTLEY_ASSIGN_OR_RETURN(const int64_t context, context_length_of(options, opened.spec));
  MOTLEY_ASSIGN_OR_RETURN(const Placement placement, place_model(opened, {.stream_experts = true}));
  MOTLEY_ASSIGN_OR_RETURN(const SystemMemory memory, read_system_memory());
  const StateLayout layout = make_state_layout(opened.spec, state_format_of(options));
  const auto plan = [&](int64_t tokens) {
    MemoryNeeds needs =
        memory_needs(opened.spec, placement, layout,
                     {.tokens = tokens, .rows = options.step_rows, .drafts = options.drafts});
    needs.model = options.model.string();
    if (options.state_budget_bytes > 0) needs.state_bytes = options.state_budget_bytes;
    return plan_memory(needs,
                       {.budget = options.memory,
                        .expert_cache = options.expert_cache,
                        .usable_bytes = static_cast<int64_t>(memory.usable_now_bytes()),
                        .usable_total_bytes = static_cast<int64_t>(memory.usable_total_bytes())});
  };
  Result<MemoryPlan> resident = plan(std::min(context, kPlannedTokens));
  const bool is_bound = options.memory.is_set() || !resident.is_ok() || resident->streamed;
  return is_bound && options.context_length > kPlannedTokens ? plan(context) : resident;
}

}  // namespace motley
