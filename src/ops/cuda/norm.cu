#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/device_math.cuh"

namespace motley::cuda {
namespace {

constexpr int kThreads = 256;

// Four consecutive elements; the vector load needs the alignment, the arithmetic does not.
__device__ float4 load_four(const float* row, int col, int dim, bool aligned) {
  if (aligned) return *reinterpret_cast<const float4*>(row + col);
  float4 value = make_float4(0, 0, 0, 0);
  if (col < dim) value.x = row[col];
  if (col + 1 < dim) value.y = row[col + 1];
  if (col + 2 < dim) value.z = row[col + 2];
  if (col + 3 < dim) value.w = row[col + 3];
  return value;
}

__device__ void store_four(float* row, int col, int dim, bool aligned, const float4& value) {
  if (aligned) {
    *reinterpret_cast<float4*>(row + col) = value;
    return;
  }
  if (col < dim) row[col] = value.x;
  if (col + 1 < dim) row[col + 1] = value.y;
  if (col + 2 < dim) row[col + 2] = value.z;
  if (col + 3 < dim) row[col + 3] = value.w;
}

__device__ bool can_vector(const void* a, int64_t stride, int dim) {
  return reinterpret_cast<uintptr_t>(a) % 16 == 0 && stride % 4 == 0 && dim % 4 == 0;
}

__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(ConstRows x, const float* weight, RmsNormParams params, Rows y, int dim) {
  __shared__ float partial[kThreads / 32];
  const float* in = x.row(blockIdx.x);
  float* out = y.row(blockIdx.x);
  const bool aligned = can_vector(x.data, x.stride, dim);
  float sum = 0;
  for (int col = 4 * static_cast<int>(threadIdx.x); col < dim; col += 4 * kThreads) {
    const float4 v = load_four(in, col, dim, aligned);
    sum += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
  }
  sum = block_sum<kThreads / 32>(sum, partial);
  const float scale = rsqrtf(sum / static_cast<float>(dim) + params.epsilon);
  const bool aligned_out = aligned && can_vector(y.data, y.stride, dim);
  for (int col = 4 * static_cast<int>(threadIdx.x); col < dim; col += 4 * kThreads) {
    const float4 v = load_four(in, col, dim, aligned);
    const float4 w = load_four(weight, col, dim, false);
    const float o = params.weight_offset;
    store_four(out, col, dim, aligned_out,
               make_float4(v.x * scale * (w.x + o), v.y * scale * (w.y + o),
                           v.z * scale * (w.z + o), v.w * scale * (w.w + o)));
  }
}

// One warp per head of one row.
__global__ void __launch_bounds__(kThreads)
    gated_norm_kernel(ConstRows x, ConstRows gate, const float* weight, RmsNormParams params,
                      Rows y, int dim, int heads, int64_t rows) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (item >= rows * heads) return;
  const int64_t row = item / heads;
  const int64_t offset = item % heads * dim;
  const float* in = x.row(row) + offset;
  const float* gates = gate.row(row) + offset;
  float* out = y.row(row) + offset;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool aligned = can_vector(x.data, x.stride, dim) && can_vector(gate.data, gate.stride, dim);
  const bool aligned_out = aligned && can_vector(y.data, y.stride, dim);
  float sum = 0;
  for (int col = 4 * lane; col < dim; col += 128) {
    const float4 v = load_four(in, col, dim, aligned);
    sum += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
  }
  sum = warp_sum(sum);
  const float scale = rsqrtf(sum / static_cast<float>(dim) + params.epsilon);
  for (int col = 4 * lane; col < dim; col += 128) {
    const float4 v = load_four(in, col, dim, aligned);
    const float4 g = load_four(gates, col, dim, aligned);
    const float4 w = load_four(weight, col, dim, false);
    const float o = params.weight_offset;
    const float4 result =
        make_float4(v.x * scale * (w.x + o) * silu(g.x), v.y * scale * (w.y + o) * silu(g.y),
                    v.z * scale * (w.z + o) * silu(g.z), v.w * scale * (w.w + o) * silu(g.w));
    store_four(out, col, dim, aligned_out, result);
  }
}

enum class Pointwise { kAdd, kSiluMultiply, kSigmoidMultiply, kSigmoidMultiplyRow };

struct PointwiseCall {
  ConstRows a;
  ConstRows b;
  Rows y;
  int dim;
  float limit;   // kSiluMultiply
  int head_dim;  // kSigmoidMultiply: columns of y to a head,
  int head_gap;  // and columns of a between one head's gates and the next one's
};

template <Pointwise kOp>
__global__ void __launch_bounds__(kThreads) pointwise_kernel(PointwiseCall call) {
  const int64_t row = blockIdx.y;
  const float* a = call.a.row(row);
  for (int col = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
       col < call.dim; col += static_cast<int>(gridDim.x) * kThreads) {
    float& out = call.y.row(row)[col];
    if constexpr (kOp == Pointwise::kAdd) out += a[col];
    if constexpr (kOp == Pointwise::kSiluMultiply) {
      out = gated_unit(a[col], call.b.row(row)[col], call.limit);
    }
    if constexpr (kOp == Pointwise::kSigmoidMultiply) {
      out *= sigmoid(a[col + col / call.head_dim * call.head_gap]);
    }
    if constexpr (kOp == Pointwise::kSigmoidMultiplyRow) out *= sigmoid(a[0]);
  }
}

template <Pointwise kOp>
void pointwise(Stream& any, const ConstTensorView& a, const ConstTensorView& b, const TensorView& y,
               PointwiseCall call) {
  CudaStream& stream = cuda_stream(any);
  const int64_t rows = y.rows();
  call.dim = static_cast<int>(y.cols());
  // The grid's second dimension is limited to 65535: long batches go in slices.
  for (int64_t begin = 0; begin < rows; begin += 32768) {
    const int64_t count = rows - begin < 32768 ? rows - begin : 32768;
    const ConstTensorView a_part = a.slice_rows(begin, count);
    const ConstTensorView b_part = b.is_empty() ? b : b.slice_rows(begin, count);
    call.a = rows_of(a_part);
    call.b = rows_of(b_part);
    call.y = rows_of(y.slice_rows(begin, count));
    const dim3 grid(grid_of(call.dim, 4 * kThreads), static_cast<unsigned>(count));
    pointwise_kernel<kOp><<<grid, kThreads, 0, stream.handle()>>>(call);
  }
  stream.check_launch("pointwise");
}

void rms_norm(Stream& any, const ConstTensorView& x, const ConstTensorView& weight,
              RmsNormParams params, const TensorView& y) {
  if (x.rows() == 0) return;
  CudaStream& stream = cuda_stream(any);
  rms_norm_kernel<<<static_cast<unsigned>(x.rows()), kThreads, 0, stream.handle()>>>(
      rows_of(x), floats_of(weight), params, rows_of(y), static_cast<int>(x.cols()));
  stream.check_launch("rms_norm");
}

void gated_rms_norm(Stream& any, const ConstTensorView& x, const ConstTensorView& gate,
                    const ConstTensorView& weight, RmsNormParams params, const TensorView& y) {
  if (x.rows() == 0) return;
  CudaStream& stream = cuda_stream(any);
  const int64_t dim = weight.shape.elements();
  const int64_t heads = x.cols() / dim;
  gated_norm_kernel<<<grid_of(x.rows() * heads, kThreads / 32), kThreads, 0, stream.handle()>>>(
      rows_of(x), rows_of(gate), floats_of(weight), params, rows_of(y), static_cast<int>(dim),
      static_cast<int>(heads), x.rows());
  stream.check_launch("gated_rms_norm");
}

void add(Stream& stream, const ConstTensorView& x, const TensorView& y) {
  pointwise<Pointwise::kAdd>(stream, x, {}, y, {});
}

void silu_multiply(Stream& stream, const ConstTensorView& gate, const ConstTensorView& up,
                   SwigluParams params, const TensorView& y) {
  PointwiseCall call{};
  call.limit = params.limit;
  pointwise<Pointwise::kSiluMultiply>(stream, gate, up, y, call);
}

void sigmoid_multiply(Stream& stream, const ConstTensorView& gate, const TensorView& y) {
  if (gate.cols() == 1 && y.cols() != 1) {
    return pointwise<Pointwise::kSigmoidMultiplyRow>(stream, gate, {}, y, {});
  }
  PointwiseCall call{};
  const bool by_head = gate.shape.rank() == 3;
  call.head_dim = static_cast<int>(by_head ? y.shape[2] : y.cols());
  call.head_gap = by_head ? static_cast<int>(gate.shape[2] - y.shape[2]) : 0;
  pointwise<Pointwise::kSigmoidMultiply>(stream, gate, {}, y, call);
}

void add_bias(Stream& stream, const ConstTensorView& bias, const TensorView& y) {
  ConstTensorView every_row = bias;
  every_row.shape = {y.rows(), y.cols()};
  every_row.row_stride = 0;
  pointwise<Pointwise::kAdd>(stream, every_row, {}, y, {});
}

// Grid: (blocks of columns, rows).
__global__ void __launch_bounds__(kThreads) zero_rows_kernel(Rows y, const int32_t* rows, int dim) {
  const int col = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (col < dim) y.row(rows[blockIdx.y])[col] = 0;
}

void zero_rows(Stream& any, std::span<const int32_t> rows, const TensorView& y) {
  if (rows.empty()) return;
  CudaStream& stream = cuda_stream(any);
  Arena::Scope scope(stream.scratch());
  // The grid's second dimension is limited to 65535.
  for (size_t begin = 0; begin < rows.size(); begin += 32768) {
    const auto part =
        rows.subspan(begin, rows.size() - begin < 32768 ? rows.size() - begin : 32768);
    const dim3 grid(grid_of(y.cols(), kThreads), static_cast<unsigned>(part.size()));
    zero_rows_kernel<<<grid, kThreads, 0, stream.handle()>>>(rows_of(y), stream.upload(part),
                                                             static_cast<int>(y.cols()));
  }
  stream.check_launch("zero_rows");
}

}  // namespace

NormOps norm_ops() {
  return {rms_norm, gated_rms_norm, add, silu_multiply, sigmoid_multiply, add_bias, zero_rows};
}

}  // namespace motley::cuda
