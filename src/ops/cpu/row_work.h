// Small things that the drivers of the matrix products share.
#pragma once

#include <span>

#include "ops/cpu/linear_kernels.h"
#include "tensor/stream.h"

namespace motley {

// Output rows of one piece of work: whole panels of every instruction set, and whole groups of
// any size, so that a piece of the hidden layer can be quantised on its own.
constexpr int64_t kBlockRows = 128;
constexpr int64_t kSmallBlockRows = 64;

inline int64_t blocks_of(int64_t rows, int64_t block_rows) {
  return (rows + block_rows - 1) / block_rows;
}

std::span<const float* const> row_pointers(Stream& stream, const ConstTensorView& view);
std::span<float* const> row_pointers(Stream& stream, const TensorView& view);

// Kernel scratch of each worker, sized for the widest matrix of a call: decoded rows
// (decoded_rows.h) or GGUF blocks made affine (gguf_rows.h), then what the kernels ask for.
class WorkerScratch {
 public:
  WorkerScratch(Stream& stream, const LinearKernels& kernels, int64_t cols);
  std::byte* of(int worker) const { return base_ + worker * stride_; }

 private:
  int64_t stride_;
  std::byte* base_;
};

}  // namespace motley
