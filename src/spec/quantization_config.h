// What config.json says about quantised weights: MLX's `quantization` member, or what
// `quantization_config` claims of block-scaled floats (quantization_claim.h).
//
// {"group_size": 64, "bits": 4, "mode": "affine", "PATH": {"group_size": 64, "bits": 8},
// "PATH": false}: a default, and overrides per module path (false: not quantised).
// `quantization_config` is a duplicate of it in these files; with a "quant_method" it belongs to
// another format. The loader derives bits and group size from the tensor
// shapes and holds them against this. Source: ml-explore/mlx-lm, mlx_lm/utils.py.
// Thread rule: an immutable value.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "numeric/mlx_affine.h"
#include "spec/config_json.h"
#include "spec/quantization_claim.h"

namespace motley {

struct QuantizationConfig {
  // Absent when the checkpoint is not quantised.
  std::optional<MlxAffineFormat> standard;
  // Exceptions by module path; nullopt: that module is not quantised.
  std::map<std::string, std::optional<MlxAffineFormat>, std::less<>> overrides;

  // Of a quantization_config with a quant_method.
  std::optional<QuantizationClaim> claim;

  // The format that `module` has if it is quantised at all.
  std::optional<MlxAffineFormat> format_of(std::string_view module) const;
  // True when an override demands that `module` be quantised.
  bool requires_quantized(std::string_view module) const;
};

// Whether `root`, a config.json, has a quantization_config with a quant_method: then it does not
// belong to MLX.
bool has_quant_method(const ConfigObject& root);

// kUnsupported for another method or mode, kInvalidArgument for a malformed or contradicting one.
Result<QuantizationConfig> read_quantization_config(const ConfigJson& config);

}  // namespace motley
