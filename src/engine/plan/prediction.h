// How fast a planned model will run, from measured rates: arithmetic only.
//
// A layer's time is what its own maths takes (engine/plan/model_rates.h) and, when experts are
// streamed, what reading the missed ones takes beyond the work that goes on meanwhile. Misses of a
// layer are independent with the share that the cache does not hold. Reads of a layer start
// together, so m of them take as long as the drive gives m records at depth m.
// Units: seconds, bytes, tokens. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/memory_plan.h"
#include "engine/plan/layer_kinds.h"
#include "engine/plan/model_rates.h"
#include "experts/cache/heat_file.h"
#include "io/stream/drive_probe.h"

namespace motley {

struct PredictionInput {
  std::vector<LayerKind> kinds;
  ModelRates rates;
  MemoryPlan plan;
  std::optional<DriveProbe> drive;  // needed when experts are streamed
  double hit_share = 1;             // of the experts that decoding wants
};

// What the time of a token or prompt goes to. The three add up to all of it.
struct TimeParts {
  double drive_s = 0;    // waiting for reads, with nothing else to do
  double memory_s = 0;   // reading weights and state at the memory's own rate
  double compute_s = 0;  // the processor beyond that

  double total_s() const { return drive_s + memory_s + compute_s; }
  // "drive", "memory" or "processor": the largest.
  std::string_view binding() const;
};

struct DecodePrediction {
  TimeParts time;           // of a token
  double drive_bytes = 0;   // read from the drive for a token
  double memory_bytes = 0;  // met in memory by a token
  double tokens_per_s() const { return 1 / time.total_s(); }
};
// A token with `context` tokens before it.
DecodePrediction predict_decode(const PredictionInput& input, int64_t context);

struct PrefillPrediction {
  int64_t tokens = 0;
  TimeParts time;
  double drive_bytes = 0;
  bool is_swept = false;  // layer by layer, each layer's experts read once
  double tokens_per_s() const { return static_cast<double>(tokens) / time.total_s(); }
};
// `tokens` from an empty sequence, in chunks of `chunk`, by a process that ran before: its cache
// holds experts, and its memory has been touched.
PrefillPrediction predict_prefill(const PredictionInput& input, int64_t tokens, int64_t chunk);

// `reads` records of `bytes` that start together.
double read_seconds(const DriveProbe& drive, int reads, int64_t bytes);

// Of even routing: the share of experts that the plan keeps in memory.
double even_hit_share(const MemoryPlan& plan);
// Of routing as the heat file learned it: what the hottest experts of each layer take, with the
// layers' floor kept. Even routing when nothing was learned.
double heat_hit_share(const MemoryPlan& plan, const HeatTable& heat);

// What one change would do.
struct Advice {
  std::string change;       // "13.5 GB of memory"
  double tokens_per_s = 0;  // of decode
  double factor = 1;
};
// The changes that would help decode by at least 5 %, the best first. `hit_share_of` gives the
// share of hits with another plan.
std::vector<Advice> advise(const PredictionInput& input, int64_t context,
                           const std::function<double(const MemoryPlan&)>& hit_share_of);

}  // namespace motley
