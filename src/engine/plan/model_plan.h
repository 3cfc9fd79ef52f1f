// What running a model here would need and how fast it would be: the work behind `motley plan`.
//
// Configuration and headers are read; of weights nothing, but for records that the drive probe
// reads and forgets. The memory is planned by the engine's own arithmetic. What cannot be measured
// is left out, with the reason: a plan never fails for a probe. Thread rule: one thread; nothing
// else should run on the machine. Errors: those of opening a model and of plan_memory(), as `run`
// gives them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/plan/prediction.h"

namespace motley {

struct ModelPlanOptions {
  EngineOptions engine;
  std::vector<int64_t> prompts = {512, 2048, 8192};
  bool probe_again = false;  // what is cached is not used
  std::string drive_cache;   // path of the file; empty: none
  std::string rate_cache;
  int64_t max_age_s = int64_t{30} * 24 * 3600;
  double drive_seconds_per_depth = 0.3;
  int64_t most_probe_bytes = int64_t{1} << 30;  // beyond weights of one layer of each kind
  std::optional<HeatTable> heat;                // of this model
  std::string heat_file;                        // where it came from
  std::function<void(const std::string& stage)> progress;
};

struct ModelPlan {
  std::string model;
  std::string processor;
  std::string numerics;
  int threads = 0;
  int64_t context = 0;  // that was planned for; 0: the engine's own choice
  MemoryPlan memory;
  int64_t floor_bytes = 0;  // the least budget
  std::vector<LayerKind> kinds;
  int64_t parts = 0;  // reads of an expert; 0: nothing is streamed
  double hit_share = 1;
  std::string hit_source;

  std::optional<ModelRates> rates;
  std::optional<DriveProbe> drive;  // when experts are streamed
  bool rates_cached = false;
  bool drive_cached = false;
  std::vector<std::string> notes;  // what could not be measured or kept, and why

  // Without rates (and a drive, when it is needed) nothing is predicted.
  int64_t decode_context = 0;
  std::optional<DecodePrediction> decode;
  std::vector<PrefillPrediction> prefill;
  std::vector<Advice> advice;

  std::string table() const;
  std::string json() const;
};

Result<ModelPlan> plan_model(Context& context, const ModelPlanOptions& options);

}  // namespace motley
