// generation_config.json: the sampling defaults that a model's authors ship.
// Thread rule: an immutable value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "spec/config_json.h"

namespace motley {

// An absent member of the file stays unset; what that means is the sampler's business.
struct GenerationConfig {
  bool do_sample = false;  // false: greedy
  std::optional<double> temperature;
  std::optional<int64_t> top_k;  // 0: off
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::vector<int32_t> eos_tokens;
};

// kInvalidArgument for a value out of range.
Result<GenerationConfig> read_generation_config(const ConfigJson& config);

// The ids of `eos_token_id` of an object: a list, one number, or nothing.
Result<std::vector<int32_t>> read_eos_tokens(const ConfigObject& object);

// Adds the ids that `all` lacks, keeping their order.
void add_eos_tokens(const std::vector<int32_t>& more, std::vector<int32_t>* all);

}  // namespace motley
