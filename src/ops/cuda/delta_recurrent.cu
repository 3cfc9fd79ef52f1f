// The token-by-token form of both delta rules: one decay per head, or one per key channel.
#include <vector>

#include "ops/cuda/channel_delta_call.cuh"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"
#include "ops/cuda/gated_delta_kernels.h"

namespace motley::cuda {
namespace {

constexpr int kWarps = 4;     // parts that the key dimension is cut into
constexpr int kColumns = 32;  // columns of S per block, one per lane
constexpr int kMaxKeyDim = 256;

// What tentative rows leave instead of a state; data null: they are not.
struct Ring {
  Rows keys;
  Rows updates;
  Rows factors;
  __device__ bool is_set() const { return keys.data != nullptr; }
};

struct Segment {
  int32_t first_row;
  int32_t rows;
  float* state;  // [value_heads, key_head_dim, value_head_dim]
  Ring ring;
};

struct Call {
  ConstRows qkv;
  ConstRows beta;
  ConstRows decay;
  const float* a_log;
  const float* dt_bias;
  Rows out;
  const Segment* segments;
  GatedDeltaShape shape;
  float lower_bound;  // of a channel's decay; 0: softplus
};

// One row's q and k of a head, normalised; q carries key_dim^-1/2. Warp 0 does q, warp 1 does k.
__device__ void load_query_key(const Call& call, const float* row, int key_head, float* q,
                               float* k) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp > 1) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int dim = call.shape.key_head_dim;
  const float* in = row + (int64_t{warp} * call.shape.key_heads + key_head) * dim;
  float* out = warp == 0 ? q : k;
  float sum = 0;
  for (int i = lane; i < dim; i += 32) sum += in[i] * in[i];
  float scale = rsqrtf(warp_sum(sum) + 1e-6f);
  if (warp == 0) scale *= rsqrtf(static_cast<float>(dim));
  for (int i = lane; i < dim; i += 32) out[i] = in[i] * scale;
}

// One row's decay factors of a head's channels, by warp 2.
__device__ void load_factors(const Call& call, int64_t row, int head, float rate, float* factors) {
  if (threadIdx.x / 32 != 2) return;
  const int dim = call.shape.key_head_dim;
  const float* a = call.decay.row(row) + int64_t{head} * dim;
  const float* bias = call.dt_bias + int64_t{head} * dim;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < dim; i += 32) {
    factors[i] = channel_factor(a[i] + bias[i], rate, call.lower_bound);
  }
}

template <int kSize>
__device__ void clear(float (&rows)[2][kSize]) {
  for (int i = static_cast<int>(threadIdx.x); i < 2 * kSize; i += 32 * kWarps) {
    rows[i / kSize][i % kSize] = 0;
  }
}

// Sum over the warps' parts of a column, in order; every thread of the column gets it.
__device__ float column_sum(float value, float (&partial)[kWarps][kColumns]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  partial[threadIdx.x / 32][lane] = value;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) total += partial[warp][lane];
  return total;
}

// The thread's part of a column; zeros beyond the state.
template <int kRows>
__device__ void load_state(const Call& call, const float* state, bool active, int base,
                           float (&s)[kRows]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const bool inside = active && base + i < call.shape.key_head_dim;
    s[i] = inside ? state[int64_t{i} * call.shape.value_head_dim] : 0.0f;
  }
}

// What one row leaves in the ring: the thread's update, and by the thread blocks of a head's first
// columns its key and factors. Heads that share a key leave it to their first one.
template <bool kByChannel>
__device__ void keep_row(const Call& call, const Ring& ring, int row, const float* k,
                         const float* factors, float decay, float update) {
  const GatedDeltaShape& shape = call.shape;
  const int head = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(blockIdx.x * kColumns + threadIdx.x);
  if (threadIdx.x < kColumns && column < shape.value_head_dim) {
    ring.updates.row(row)[int64_t{head} * shape.value_head_dim + column] = update;
  }
  if (blockIdx.x != 0) return;
  const int dim = shape.key_head_dim;
  const int each = shape.value_heads / shape.key_heads;
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += 32 * kWarps) {
    if (head % each == 0) ring.keys.row(row)[int64_t{head / each} * dim + i] = k[i];
    if constexpr (kByChannel) ring.factors.row(row)[int64_t{head} * dim + i] = factors[i];
  }
  if (!kByChannel && threadIdx.x == 0) ring.factors.row(row)[head] = decay;
}

// Grid: (column blocks, value heads, segments). Each thread holds kRows elements of one column.
// kByChannel: the rule of ops/channel_delta.h.
template <int kRows, bool kByChannel>
__global__ void __launch_bounds__(32 * kWarps) recurrent_kernel(Call call) {
  __shared__ float q[2][kMaxKeyDim];
  __shared__ float k[2][kMaxKeyDim];
  __shared__ float factors[2][kByChannel ? kMaxKeyDim : 1];
  __shared__ float read_parts[kWarps][kColumns];
  __shared__ float out_parts[kWarps][kColumns];
  const Segment segment = call.segments[blockIdx.z];
  const GatedDeltaShape& shape = call.shape;
  const int head = static_cast<int>(blockIdx.y);
  const int key_head = head / (shape.value_heads / shape.key_heads);
  const int column = static_cast<int>(blockIdx.x) * kColumns + static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int base = warp * kRows;
  const bool active = column < shape.value_head_dim;
  float* state =
      segment.state + (int64_t{head} * shape.key_head_dim + base) * shape.value_head_dim + column;
  float s[kRows];
  load_state(call, state, active, base, s);
  clear(q);
  clear(k);
  clear(factors);
  __syncthreads();
  const float rate = expf(call.a_log[head]);
  for (int t = 0; t < segment.rows; ++t) {
    const int64_t row = segment.first_row + t;
    const float* in = call.qkv.row(row);
    const float* q_row = q[t % 2] + base;
    const float* k_row = k[t % 2] + base;
    load_query_key(call, in, key_head, q[t % 2], k[t % 2]);
    float decay = 0;
    if constexpr (kByChannel) {
      load_factors(call, row, head, rate, factors[t % 2]);
    } else {
      decay = expf(-rate * softplus(call.decay.row(row)[head] + call.dt_bias[head]));
    }
    const float beta = sigmoid(call.beta.row(row)[head]);
    const float v = active ? in[int64_t{2} * shape.key_heads * shape.key_head_dim +
                                int64_t{head} * shape.value_head_dim + column]
                           : 0.0f;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      s[i] *= kByChannel ? factors[t % 2][kByChannel ? base + i : 0] : decay;
      sum = fmaf(s[i], k_row[i], sum);
    }
    const float update = beta * (v - column_sum(sum, read_parts));
    if (segment.ring.is_set()) {
      keep_row<kByChannel>(call, segment.ring, t, k[t % 2], factors[kByChannel ? t % 2 : 0], decay,
                           update);
    }
    sum = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      s[i] = fmaf(k_row[i], update, s[i]);
      sum = fmaf(s[i], q_row[i], sum);
    }
    const float out = column_sum(sum, out_parts);
    if (warp == 0 && active) {
      call.out.row(row)[int64_t{head} * shape.value_head_dim + column] = out;
    }
  }
  if (segment.ring.is_set()) return;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (active && base + i < shape.key_head_dim) state[int64_t{i} * shape.value_head_dim] = s[i];
  }
}

// The operations of the kernel above on the state, for the rows of a ring.
// Grid: (keys, value heads).
template <bool kByChannel>
__global__ void __launch_bounds__(32 * kWarps)
    commit_kernel(float* states, ConstRows keys, ConstRows updates, ConstRows factors, int rows,
                  const __grid_constant__ GatedDeltaShape shape) {
  const int key = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int dim = shape.key_head_dim;
  const int key_head = head / (shape.value_heads / shape.key_heads);
  float* state = states + (int64_t{head} * dim + key) * shape.value_head_dim;
  for (int col = static_cast<int>(threadIdx.x); col < shape.value_head_dim; col += 32 * kWarps) {
    float s = state[col];
    for (int t = 0; t < rows; ++t) {
      const float factor = factors.row(t)[kByChannel ? int64_t{head} * dim + key : int64_t{head}];
      const float update = updates.row(t)[int64_t{head} * shape.value_head_dim + col];
      s = fmaf(keys.row(t)[int64_t{key_head} * dim + key], update, __fmul_rn(s, factor));
    }
    state[col] = s;
  }
}

template <bool kByChannel>
void run(CudaStream& stream, const Call& call, size_t segments, const char* op) {
  const GatedDeltaShape& shape = call.shape;
  if (shape.key_head_dim > kMaxKeyDim) {
    stream.note(cudaErrorNotSupported, "delta rule, recurrent: key heads over 256");
    return;
  }
  const dim3 grid(grid_of(shape.value_head_dim, kColumns), static_cast<unsigned>(shape.value_heads),
                  static_cast<unsigned>(segments));
  const int rows = static_cast<int>(divide_up(shape.key_head_dim, kWarps));
  if (rows <= 8) {
    recurrent_kernel<8, kByChannel><<<grid, 32 * kWarps, 0, stream.handle()>>>(call);
  } else if (rows <= 32) {
    recurrent_kernel<32, kByChannel><<<grid, 32 * kWarps, 0, stream.handle()>>>(call);
  } else {
    recurrent_kernel<64, kByChannel><<<grid, 32 * kWarps, 0, stream.handle()>>>(call);
  }
  stream.check_launch(op);
}

// Works for the arguments of both rules, whose fields have the same names.
template <typename Args>
Call make_call(CudaStream& stream, const Args& args, const GatedDeltaShape& shape,
               std::vector<Segment>* segments) {
  for (const auto& segment : args.segments) {
    if (segment.rows.rows == 0) continue;
    const DeltaRing& ring = segment.ring;
    segments->push_back({segment.rows.first_row,
                         segment.rows.rows,
                         reinterpret_cast<float*>(segment.state.data),
                         {rows_of(ring.keys), rows_of(ring.updates), rows_of(ring.factors)}});
  }
  Call call{};
  call.qkv = rows_of(args.qkv);
  call.beta = rows_of(args.beta);
  call.decay = rows_of(args.decay);
  call.a_log = floats_of(args.a_log);
  call.dt_bias = floats_of(args.dt_bias);
  call.out = rows_of(args.out);
  call.segments = stream.upload<Segment>(*segments);
  call.shape = shape;
  return call;
}

template <bool kByChannel, typename AnySegment>
void commit(Stream& any, const GatedDeltaShape& shape, const AnySegment& segment, const char* op) {
  if (segment.rows.rows == 0) return;
  CudaStream& stream = cuda_stream(any);
  const auto read = [](const TensorView& view) { return rows_of(ConstTensorView(view)); };
  const dim3 grid(static_cast<unsigned>(shape.key_head_dim),
                  static_cast<unsigned>(shape.value_heads));
  commit_kernel<kByChannel><<<grid, 32 * kWarps, 0, stream.handle()>>>(
      reinterpret_cast<float*>(segment.state.data), read(segment.ring.keys),
      read(segment.ring.updates), read(segment.ring.factors), segment.rows.rows, shape);
  stream.check_launch(op);
}

}  // namespace

void gated_delta_recurrent(Stream& any, const GatedDeltaArgs& args) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  std::vector<Segment> segments;
  const Call call = make_call(stream, args, args.shape, &segments);
  if (!segments.empty()) run<false>(stream, call, segments.size(), "gated_delta.recurrent");
}

void channel_delta_recurrent(Stream& any, const ChannelDeltaArgs& args) {
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  std::vector<Segment> segments;
  Call call = make_call(stream, args, shape_as_gated(args.shape), &segments);
  call.lower_bound = args.gate == DecayGate::kBounded ? args.lower_bound : 0.0f;
  if (!segments.empty()) run<true>(stream, call, segments.size(), "channel_delta.recurrent");
}

void gated_delta_commit(Stream& any, const GatedDeltaShape& shape,
                        const GatedDeltaSegment& segment) {
  commit<false>(any, shape, segment, "gated_delta.commit");
}

void channel_delta_commit(Stream& any, const ChannelDeltaShape& shape,
                          const ChannelDeltaSegment& segment) {
  commit<true>(any, shape_as_gated(shape), segment, "channel_delta.commit");
}

}  // namespace motley::cuda
