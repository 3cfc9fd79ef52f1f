// What loading a model with certain options would need and how memory would be divided, without
// loading it: one answer for the engine and for `motley plan`.
// Thread rule: pure but for the machine's memory, which is read. Errors: those of plan_memory(),
// and kInvalidArgument for a context that the model was not made for.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "io/loader.h"
#include "spec/state_layout.h"

namespace motley {

StateFormat state_format_of(const EngineOptions& options);

// Fewer experts per token in every layer, which is another model than the one trained; 0 changes
// nothing. The model's own number. kInvalidArgument unless it is more, and for a model without
// experts.
Result<int> limit_experts(int experts_per_token, ModelSpec* spec);
// What every output says of such a model, after the name of its arithmetic.
std::string lossy_text(int experts_per_token, int own_experts_per_token);

// Tokens that a sequence may have.
Result<int64_t> context_length_of(const EngineOptions& options, const ModelSpec& spec);

// Of this machine, now.
Result<MemoryPlan> plan_engine_memory(const OpenedModel& opened, const EngineOptions& options);

}  // namespace motley
