// Which number format each tensor of a new checkpoint gets.
// In the MLX layout matrices become affine; in the Hugging Face layout they stay BF16 or become
// block-scaled floats in one of the spellings that released files have. These leave embedding,
// head, router, indexer, gates and the small inputs of the delta rule as they are, and 4-bit ones
// the draft layers. Source of the exceptions: mlx-community conversions (router and shared gate at
// 8 bits, group 64); draft layers below 8 bits lose their acceptance.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "numeric/mlx_affine.h"
#include "spec/block_float_names.h"
#include "spec/model_spec.h"
#include "spec/tensor_catalog.h"

namespace motley {

struct FormatRequest {
  // kHuggingFace: BF16 throughout, or as `spelling` says. kMlx: affine, with these defaults.
  CheckpointLayout layout = CheckpointLayout::kMlx;
  MlxAffineFormat standard;                   // attention, shared experts, embedding, head
  std::optional<MlxAffineFormat> experts;     // routed experts; default: standard
  std::optional<FloatSpelling> spelling;      // kHuggingFace only
  static constexpr int kMinimumGateBits = 8;  // router, shared-expert gate, draft layers

  // kInvalidArgument for a width or group size that does not exist.
  Status validate() const;
  // nullopt: not quantised.
  std::optional<MlxAffineFormat> format_of(const TensorSpec& tensor) const;
  std::optional<FloatSpelling> spelling_of(const TensorSpec& tensor) const;
};

// "bf16", "mlx4", "mlx4g32", "fp8", "nvfp4", "nvfp4-packed", "mxfp4" as given on the command line.
Result<FormatRequest> parse_format(const std::string& text);

}  // namespace motley
