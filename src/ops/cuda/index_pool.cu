// Pooled index keys; contracts in ops/index_pool.h.
#include <algorithm>
#include <vector>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 128;

// The tokens of one segment.
struct Segment {
  int64_t first_position;
  int32_t first_row;
  int32_t rows;
  Rows ring;
  int32_t ring_rows;
};

// A pool that a segment completes.
struct Pool {
  int64_t number;
  int32_t segment;
};

struct PoolCall {
  ConstRows k;
  ConstRows gate;
  ConstRows ape;
  Rows keys;
  const Segment* segments;
  const Pool* pools;
  int pool;
  int dim;
};

// Key and gate of a token: a row of the segment, or one before it in the ring.
struct Token {
  const float* k;
  const float* gate;
};

__device__ Token find_token(const PoolCall& call, const Segment& segment, int64_t position) {
  const int64_t row = position - segment.first_position;
  if (row >= 0) {
    return {call.k.row(segment.first_row + row), call.gate.row(segment.first_row + row)};
  }
  const float* held = segment.ring.row(position % segment.ring_rows);
  return {held, held + call.dim};
}

// Grid: pools. The shares of a channel are formed twice: their largest first, then the sums.
__global__ void __launch_bounds__(kThreads) pool_kernel(const __grid_constant__ PoolCall call) {
  const Pool item = call.pools[blockIdx.x];
  const Segment segment = call.segments[item.segment];
  const int64_t first = item.number * call.pool;
  for (int c = static_cast<int>(threadIdx.x); c < call.dim; c += kThreads) {
    float highest = -INFINITY;
    for (int j = 0; j < call.pool; ++j) {
      const Token token = find_token(call, segment, first + j);
      highest = fmaxf(highest, token.gate[c] + call.ape.row(j)[c]);
    }
    float sum = 0;
    float key = 0;
    for (int j = 0; j < call.pool; ++j) {
      const Token token = find_token(call, segment, first + j);
      const float share = expf(token.gate[c] + call.ape.row(j)[c] - highest);
      sum += share;
      key = fmaf(share, token.k[c], key);
    }
    call.keys.row(blockIdx.x)[c] = key / sum;
  }
}

// The segment's last tokens to its ring. Grid: (rows, segments).
__global__ void __launch_bounds__(kThreads) keep_kernel(const __grid_constant__ PoolCall call) {
  const Segment segment = call.segments[blockIdx.y];
  const int64_t row = segment.rows - 1 - static_cast<int64_t>(blockIdx.x);
  if (row < 0 || static_cast<int>(blockIdx.x) >= segment.ring_rows) return;
  float* held = segment.ring.row((segment.first_position + row) % segment.ring_rows);
  for (int c = static_cast<int>(threadIdx.x); c < call.dim; c += kThreads) {
    held[c] = call.k.row(segment.first_row + row)[c];
    held[call.dim + c] = call.gate.row(segment.first_row + row)[c];
  }
}

void pool_keys(Stream& any, const ConstTensorView& k, const ConstTensorView& gate,
               const ConstTensorView& ape, std::span<const IndexPoolSegment> segments,
               const TensorView& keys) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  std::vector<Segment> items;
  std::vector<Pool> pools;
  int64_t kept = 0;
  for (const IndexPoolSegment& segment : segments) {
    const PoolRange range = completed_pools(segment.rows, ape.rows());
    for (int64_t p = range.first; p < range.first + range.count; ++p) {
      pools.push_back({p, static_cast<int32_t>(items.size())});
    }
    items.push_back({segment.rows.first_position.value, segment.rows.first_row, segment.rows.rows,
                     rows_of(segment.ring), static_cast<int32_t>(segment.ring.rows())});
    kept = std::max(kept, std::min<int64_t>(segment.rows.rows, segment.ring.rows()));
  }
  if (kept == 0) return;
  PoolCall call{};
  call.k = rows_of(k);
  call.gate = rows_of(gate);
  call.ape = rows_of(ape);
  call.keys = rows_of(keys);
  call.segments = stream.upload<Segment>(items);
  call.pools = stream.upload<Pool>(pools);
  call.pool = static_cast<int>(ape.rows());
  call.dim = static_cast<int>(k.cols());
  if (!pools.empty()) {
    pool_kernel<<<static_cast<unsigned>(pools.size()), kThreads, 0, stream.handle()>>>(call);
  }
  const dim3 grid(static_cast<unsigned>(kept), static_cast<unsigned>(items.size()));
  keep_kernel<<<grid, kThreads, 0, stream.handle()>>>(call);
  stream.check_launch("index_pool.pool_keys");
}

struct TokensCall {
  RowsOf<const int32_t> pools;
  RowsOf<const int32_t> counts;
  RowsOf<int32_t> positions;
  RowsOf<int32_t> token_counts;
  const int64_t* row_positions;  // -1: in no segment
  int pool;
  int width;
  bool tail;
};

// Grid: rows.
__global__ void __launch_bounds__(kThreads) tokens_kernel(const __grid_constant__ TokensCall call) {
  const int64_t row = blockIdx.x;
  const int64_t position = call.row_positions[row];
  if (position < 0) return;
  const int chosen = call.counts.row(row)[0] * call.pool;
  const int open = call.tail ? static_cast<int>((position + 1) % call.pool) : 0;
  int32_t* positions = call.positions.row(row);
  for (int i = static_cast<int>(threadIdx.x); i < call.width; i += kThreads) {
    int32_t value = -1;
    if (i < chosen) {
      value = call.pools.row(row)[i / call.pool] * call.pool + i % call.pool;
    } else if (i < chosen + open) {
      value = static_cast<int32_t>(position + 1) - open + i - chosen;
    }
    positions[i] = value;
  }
  if (threadIdx.x == 0) call.token_counts.row(row)[0] = chosen + open;
}

template <typename T, typename View>
RowsOf<T> ints_of(const View& view) {
  return {reinterpret_cast<T*>(view.data), view.row_stride};
}

void pool_tokens(Stream& any, const PoolTokensArgs& args) {
  MOTLEY_CHECK(args.positions.cols() == pool_tokens_width(args.pools.cols(), args.pool, args.tail),
               "the positions have room for every pool and the tail");
  const int64_t rows = args.pools.rows();
  if (rows == 0) return;
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  std::vector<int64_t> row_positions(static_cast<size_t>(rows), -1);
  for (const RowSegment& segment : args.segments) {
    for (int32_t i = 0; i < segment.rows; ++i) {
      row_positions[static_cast<size_t>(segment.first_row + i)] = segment.first_position.value + i;
    }
  }
  TokensCall call{};
  call.pools = ints_of<const int32_t>(args.pools);
  call.counts = ints_of<const int32_t>(args.counts);
  call.positions = ints_of<int32_t>(args.positions);
  call.token_counts = ints_of<int32_t>(args.token_counts);
  call.row_positions = stream.upload<int64_t>(row_positions);
  call.pool = static_cast<int>(args.pool);
  call.width = static_cast<int>(args.positions.cols());
  call.tail = args.tail;
  tokens_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream.handle()>>>(call);
  stream.check_launch("index_pool.pool_tokens");
}

}  // namespace

IndexPoolOps index_pool_ops() {
  return {pool_keys, pool_tokens};
}

}  // namespace motley::cuda
