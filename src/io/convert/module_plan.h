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
  std::optional<MlxAffineFormat> format;  // quantised
  DType dtype = DType::kBf16;             // of values, or of scales and biases
  float weight_offset = 0;                // norms: what is added to the stored weight when used
  bool is_draft = false;                  // of a draft layer
  std::vector<ModuleRows> sources;        // in order of rows

  int64_t total_rows() const { return rows * (experts > 0 ? experts : 1); }
  int64_t value_row_bytes() const {
    return format ? format->row_bytes(cols) : cols * dtype_bytes(dtype);
  }
  int64_t scale_row_bytes() const { return format ? format->groups(cols) * dtype_bytes(dtype) : 0; }
  int64_t bytes() const { return total_rows() * (value_row_bytes() + 2 * scale_row_bytes()); }
  // One declaration, or three (weight, scales, biases) when quantised.
  std::vector<TensorDeclaration> declarations(CheckpointLayout layout) const;
};

// In order of first use by the spec, draft layers last.
std::vector<ModulePlan> plan_modules(const ModelSpec& spec, const FormatRequest& request);

}  // namespace motley
