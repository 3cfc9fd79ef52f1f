// Binds the tensors of a block-scaled module: element types and shapes are checked, and the scale
// of the whole tensor is read.
// Ownership: the matrix views the checkpoint. Thread rule: pure function.
// Errors: kCorrupt, naming shard and tensor.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "io/checkpoint.h"
#include "spec/block_float_names.h"
#include "tensor/weight_matrix.h"

namespace motley {

struct BlockFloatShape {
  int64_t rows = 0;  // of one matrix
  int64_t cols = 0;
  int64_t experts = 0;  // leading dimension; 0: none
};

// All tensors that `names` names exist. The matrix is that of the first expert.
Result<WeightMatrix> bind_block_float(const Checkpoint& checkpoint, const BlockFloatTensors& names,
                                      const BlockFloatShape& shape);

// Whether every scale is usable; the error says what it is that one holds.
Status check_block_scales(const Checkpoint& checkpoint, const CheckpointTensor& scales,
                          const BlockFloatFormat& format);

// "fp8 128x128", "nvfp4", ...
std::string block_float_name(const BlockFloatFormat& format);

}  // namespace motley
