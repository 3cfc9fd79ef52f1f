#include "ops/cpu/row_work.h"

#include <algorithm>

#include "ops/cpu/decoded_rows.h"
#include "ops/cpu/gguf_rows.h"

namespace motley {

std::span<const float* const> row_pointers(Stream& stream, const ConstTensorView& view) {
  const float** rows = stream.scratch().allocate<const float*>(view.rows());
  for (int64_t row = 0; row < view.rows(); ++row) rows[row] = view.row<float>(row);
  return {rows, static_cast<size_t>(view.rows())};
}

std::span<float* const> row_pointers(Stream& stream, const TensorView& view) {
  float** rows = stream.scratch().allocate<float*>(view.rows());
  for (int64_t row = 0; row < view.rows(); ++row) rows[row] = view.row<float>(row);
  return {rows, static_cast<size_t>(view.rows())};
}

WorkerScratch::WorkerScratch(Stream& stream, const LinearKernels& kernels, int64_t cols)
    : stride_((std::max(decoded_rows_bytes(cols), gguf_rows_bytes(cols)) +
               kernels.scratch_bytes(cols) + 127) /
              128 * 128),
      base_(static_cast<std::byte*>(stream.scratch().allocate_bytes(
          static_cast<size_t>(stride_ * stream.threads().size())))) {}

}  // namespace motley
