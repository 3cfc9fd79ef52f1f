#include "ops/cpu/decoded_rows.h"

#include <algorithm>

namespace motley {

void multiply_decoded_rows(const LinearKernels& kernels, const WeightMatrix& weights,
                           const ActivationPacks& x, const ProductOutput& output, bool fast,
                           std::byte* scratch) {
  auto* decoded = reinterpret_cast<float*>(scratch);
  std::byte* rest = scratch + decoded_rows_bytes(weights.cols);
  for (int64_t first = 0; first < weights.rows; first += kDecodedRows) {
    const int64_t count = std::min(kDecodedRows, weights.rows - first);
    for (int64_t row = 0; row < count; ++row) {
      decode_row(weights, first + row, decoded + row * weights.cols);
    }
    const FloatRows rows{reinterpret_cast<const uint8_t*>(decoded), weights.cols * 4, count,
                         weights.cols, ScalarFormat::kF32};
    kernels.float_rows(rows,
                       {x.float_rows().data(), output.y.data(), output.y_offset + first, x.count()},
                       fast, rest);
  }
}

}  // namespace motley
