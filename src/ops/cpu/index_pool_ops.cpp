#include "ops/cpu/cpu_ops.h"

namespace motley {
namespace {

// The task of one pool: its tokens are rows of the segment or, before it, of the ring.
void point_at_tokens(const ConstTensorView& k, const ConstTensorView& gate,
                     const IndexPoolSegment& segment, int64_t first_position, int64_t pool,
                     const float** keys, const float** gates) {
  for (int64_t j = 0; j < pool; ++j) {
    const int64_t row = first_position + j - segment.rows.first_position.value;
    if (row >= 0) {
      keys[j] = k.row<float>(segment.rows.first_row + row);
      gates[j] = gate.row<float>(segment.rows.first_row + row);
    } else {
      keys[j] = segment.ring.row<float>((first_position + j) % segment.ring.rows());
      gates[j] = keys[j] + k.cols();
    }
  }
}

// Of a long segment only the last rows stay.
void keep_tokens(const ConstTensorView& k, const ConstTensorView& gate,
                 const IndexPoolSegment& segment) {
  const int64_t dim = k.cols();
  const int64_t ring_rows = segment.ring.rows();
  for (int64_t row = std::max<int64_t>(0, segment.rows.rows - ring_rows); row < segment.rows.rows;
       ++row) {
    float* held = segment.ring.row<float>((segment.rows.first_position.value + row) % ring_rows);
    std::copy_n(k.row<float>(segment.rows.first_row + row), dim, held);
    std::copy_n(gate.row<float>(segment.rows.first_row + row), dim, held + dim);
  }
}

}  // namespace

void cpu_pool_keys(const CpuKernels& kernels, Stream& stream, const ConstTensorView& k,
                   const ConstTensorView& gate, const ConstTensorView& ape,
                   std::span<const IndexPoolSegment> segments, const TensorView& keys) {
  const int64_t dim = k.cols();
  const int64_t pool = ape.rows();
  MOTLEY_CHECK(gate.cols() == dim && ape.cols() == dim && ape.is_contiguous() && keys.cols() == dim,
               "keys, gates and offsets of a pool must match");
  const Arena::Scope scope(stream.scratch());
  const int64_t workers = stream.threads().size();
  auto** pointers = stream.scratch().allocate<const float*>(workers * 2 * pool);
  int64_t next = 0;
  for (const IndexPoolSegment& segment : segments) {
    MOTLEY_CHECK(segment.ring.rows() >= index_ring_rows(pool) && segment.ring.cols() == 2 * dim,
                 "a ring holds a pool and the rows that may be taken back");
    const PoolRange range = completed_pools(segment.rows, pool);
    MOTLEY_CHECK(next + range.count <= keys.rows(), "one row for every pool that is completed");
    const auto mix = [&](int worker, int64_t begin, int64_t end) {
      const float** task_keys = pointers + worker * 2 * pool;
      const float** task_gates = task_keys + pool;
      for (int64_t i = begin; i < end; ++i) {
        point_at_tokens(k, gate, segment, (range.first + i) * pool, pool, task_keys, task_gates);
        kernels.index_pool({.keys = task_keys,
                            .gates = task_gates,
                            .ape = ape.as<float>(),
                            .key = keys.row<float>(next + i),
                            .pool = pool,
                            .dim = dim});
      }
    };
    // An exponential costs as much as a few of the operations that row_grain() counts.
    stream.threads().parallel_for(range.count, row_grain(4 * pool * dim), mix);
    keep_tokens(k, gate, segment);
    next += range.count;
  }
}

}  // namespace motley
