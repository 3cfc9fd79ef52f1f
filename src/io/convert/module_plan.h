// The modules of a checkpoint to be written: names, shapes and formats, from a planned ModelSpec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/convert/format_request.h"
#include "io/safetensors_writer.h"
#include "spec/model_spec.h"

namespace motley {

// Rows [row_begin, ...) of a module come from this tensor of the spec.
struct ModuleRows {
  TensorHandle tensor;
  int64_t row_begin = 0;  // in the module
  int64_t row_count = 0;
  int64_t tensor_begin = 0;  // in the tensor
};

struct ModulePlan {
  std::string module;
  bool bare = false;
  TensorRole role = TensorRole::kMatrix;
  int64_t experts = 0;       // leading dimension; 0: none
  int64_t first_expert = 0;  // the only one of a module that holds a single expert
  int64_t rows = 0;          // per expert
  int64_t cols = 1;
  std::optional<MlxAffineFormat> format;  // quantised in the MLX layout
  std::optional<FloatSpelling> spelling;  // block-scaled floats in the Hugging Face layout
  BlockFloatFormat block;                 // then
  DType dtype = DType::kBf16;             // of values, or of scales and biases
  float weight_offset = 0;                // norms: what is added to the stored weight when used
  bool is_draft = false;                  // of a draft layer
  std::vector<ModuleRows> sources;        // in order of rows

  int64_t value_row_bytes() const {
    if (spelling) return block.row_bytes(cols);
    return format ? format->row_bytes(cols) : cols * dtype_bytes(dtype);
  }
  // Planes of scales: scales and biases of affine modules, scales alone of block-scaled floats.
  int64_t scale_planes() const { return format ? 2 : spelling ? 1 : 0; }
  int64_t scale_row_bytes() const {
    if (spelling) return block.blocks(cols) * block.scale_bytes();
    return format ? format->groups(cols) * dtype_bytes(dtype) : 0;
  }
  // Lines of a plane of scales for that many rows, which begin with a whole block.
  int64_t scale_lines(int64_t row_count) const {
    return spelling ? block.block_lines(row_count) : row_count;
  }
  bool has_tensor_scale() const;  // one float for the module, after the scales
  // Bytes of `row_count` rows: values and planes of scales.
  int64_t bytes_of(int64_t row_count) const {
    return row_count * value_row_bytes() +
           scale_planes() * scale_lines(row_count) * scale_row_bytes();
  }
  int64_t bytes() const {
    return bytes_of(rows) * (experts > 0 ? experts : 1) + (has_tensor_scale() ? 4 : 0);
  }
  // One declaration, or also those of scales, biases and the scale of the tensor.
  std::vector<TensorDeclaration> declarations(CheckpointLayout layout) const;
  std::vector<TensorDeclaration> block_declarations() const;
};

// In order of first use by the spec, draft layers last.
std::vector<ModulePlan> plan_modules(const ModelSpec& spec, const FormatRequest& request);

}  // namespace motley
