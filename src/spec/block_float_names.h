// How checkpoints spell modules of block-scaled floats: which tensors, of which element types.
//
//   spelling            codes            scales            scale of the tensor
//   FP8                 weight F8_E4M3   weight_scale_inv  -
//   FP8, other blocks   weight F8_E4M3   weight_scale      -
//   NVFP4 (ModelOpt)    weight U8        weight_scale      weight_scale_2
//   NVFP4 (packed)      weight_packed    weight_scale      weight_global_scale, its reciprocal
//   MXFP4 (packed)      weight_packed    weight_scale U8   -
//   MXFP4 (ModelOpt)    weight U8        weight_scale U8   -
// "Packed" is what compressed-tensors writes. A stack of experts without ".weight" in its name
// has one spelling, FP8: STACK and STACK_scale_inv.
// Sources: NVIDIA Model-Optimizer, vllm-project/compressed-tensors, transformers' finegrained_fp8.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "numeric/block_float.h"
#include "spec/tensor_catalog.h"

namespace motley {

enum class FloatKind : uint8_t { kFp8, kNvfp4, kMxfp4 };
std::string_view float_kind_name(FloatKind kind);  // "fp8", "nvfp4", "mxfp4"

struct BlockFloatTensors {
  FloatKind kind = FloatKind::kFp8;
  std::string codes;
  std::string scales;
  std::string tensor_scale;        // empty: there is none
  bool is_reciprocal = false;      // of tensor_scale
  bool has_square_blocks = false;  // 128 x 128; else the shape of the scales tells
};

BlockFloatFormat block_float_format(FloatKind kind);

// The spellings in which checkpoints are written.
enum class FloatSpelling : uint8_t { kFp8, kNvfp4, kNvfp4Packed, kMxfp4Packed };
BlockFloatTensors spelled(FloatSpelling spelling, const std::string& module);

// The spelling of `module` in `catalog`, as far as its tensors are there: some of those named may
// be missing. nullopt: the module holds something else.
std::optional<BlockFloatTensors> find_block_float(const TensorCatalog& catalog,
                                                  const std::string& module, bool bare);

// Tensors beside a module that only matter to engines that quantise activations or caches.
struct UnusedScale {
  std::string_view suffix;
  std::string_view reason;
};
inline constexpr std::array kUnusedScales = {
    UnusedScale{".input_scale", "static scale of activations: they are not quantised by it"},
    UnusedScale{".input_global_scale", "static scale of activations: they are not quantised by it"},
    UnusedScale{".k_scale", "static scale of a quantised cache: not used"},
    UnusedScale{".v_scale", "static scale of a quantised cache: not used"},
};

}  // namespace motley
