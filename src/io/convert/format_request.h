// Which number format each tensor of a new checkpoint gets.
// Source of the exceptions: mlx-community conversions (router and shared gate at 8 bits, group 64);
// draft layers below 8 bits lose their acceptance.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "numeric/mlx_affine.h"
#include "spec/model_spec.h"
#include "spec/tensor_catalog.h"

namespace motley {

struct FormatRequest {
  // kHuggingFace: BF16 throughout. kMlx: affine, with these defaults.
  CheckpointLayout layout = CheckpointLayout::kMlx;
  MlxAffineFormat standard;                   // attention, shared experts, embedding, head
  std::optional<MlxAffineFormat> experts;     // routed experts; default: standard
  static constexpr int kMinimumGateBits = 8;  // router, shared-expert gate, draft layers

  // kInvalidArgument for a width or group size that does not exist.
  Status validate() const;
  // nullopt: not quantised.
  std::optional<MlxAffineFormat> format_of(const TensorSpec& tensor) const;
};

// "bf16", "mlx4", "mlx4g32", ... as given on the command line.
Result<FormatRequest> parse_format(const std::string& text);

}  // namespace motley
