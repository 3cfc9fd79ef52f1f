// Matrix products with the checkpoint's weights.
//
// Arithmetic contract (R5): a row of the result depends only on the row of x, the weights, the
// row's role and the numeric profile; never on how many rows or threads share the call. Sums along
// the contraction dimension are cut at fixed places.
// Error bounds, tested on random shapes against ops/reference:
//   exact  |y - ref| <= 8 * 2^-24 * sqrt(K) * sum|w x|
//   fast   |y - ref| <= 2 * 2^-9 * sum|w x|
#pragma once

#include <cstdint>
#include <span>

#include "tensor/row_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor_view.h"
#include "tensor/weight_matrix.h"

namespace motley {

// y [rows, weights.rows] = x [rows, weights.cols] * W^T. y must not overlap x.
struct LinearTarget {
  WeightMatrix weights;
  TensorView y;
};

struct LinearOps {
  // All targets share x and are computed in one pass over it. x rows: counts.decode rows with the
  // decode role, then counts.prefill rows with the prefill role. x and y have the backend's
  // activation dtype.
  void (*linear)(Stream& stream, const ConstTensorView& x, RowCounts counts,
                 std::span<const LinearTarget> targets) = nullptr;

  // out [ids.size(), table.cols]: the rows of `table` named by ids (all in [0, table.rows)).
  void (*embed)(Stream& stream, const WeightMatrix& table, std::span<const int32_t> ids,
                const TensorView& out) = nullptr;
};

}  // namespace motley
