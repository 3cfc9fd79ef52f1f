// Times one layer of each kind of a model, with made-up weights of its formats and shapes.
//
// The real blocks and ops run, through the decoder. Between two timings the whole of a large buffer
// is read, which pushes the weights out of the caches, as other layers would, and gives the
// memory's rate of the same moments. Takes a second or two and at most
// ComputeProbeOptions::most_bytes (and the weights of one layer of each kind), so large matrices
// are timed in part. Thread rule: one thread; nothing else should run on the machine. Errors:
// kResourceExhausted when the memory cannot be had; those of make_up_weights().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/status.h"
#include "engine/plan/layer_kinds.h"
#include "engine/plan/model_rates.h"
#include "io/loader.h"
#include "model/blocks/gated_delta.h"
#include "ops/op_table.h"
#include "spec/state_layout.h"

namespace motley {

struct ComputeProbeOptions {
  StateFormat state;
  DeltaForm delta = DeltaForm::kRecurrent;
  int64_t near_tokens = 512;   // before the decoded token
  int64_t far_tokens = 8192;   // where it is timed again, for the cost of context
  int64_t chunk_tokens = 512;  // of prefill
  int64_t most_bytes = int64_t{512} << 20;
  // Of a model that stays in the caches whatever runs, nothing is pushed out of them.
  bool fits_caches = false;
  double seconds_per_timing = 0.1;
  std::function<void(const std::string& stage)> progress;
};

// `model` gives its files away. `kinds` are its layer_kinds(); rates come back in their order.
Result<ModelRates> measure_model_rates(Context& context, OpenedModel model,
                                       const std::vector<LayerKind>& kinds, const OpTable& ops,
                                       const ComputeProbeOptions& options);

}  // namespace motley
