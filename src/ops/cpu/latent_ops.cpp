// Rotation, cache writes and the products of each head with its part of the up-projection. The
// attention product is in latent_attend.cpp.
#include <cmath>

#include "ops/cpu/cpu_ops.h"

namespace motley {
namespace {

// Pairs of one head; angles in double, as in attention_ops.cpp.
void rotate_pairs(const float* cosines, const float* sines, int64_t half, bool interleaved,
                  const float* x, float* y) {
  for (int64_t i = 0; i < half; ++i) {
    const int64_t a = interleaved ? 2 * i : i;
    const int64_t b = interleaved ? 2 * i + 1 : i + half;
    const float first = x[a];
    const float second = x[b];
    y[a] = first * cosines[i] - second * sines[i];
    y[b] = second * cosines[i] + first * sines[i];
  }
}

// Rows of one task of cpu_head_linear: enough to pay for decoding the head's weights.
constexpr int64_t kHeadRows = 64;

struct HeadTask {
  const WeightMatrix& weights;
  int64_t head;
  int64_t first;  // row of x and y
  int64_t rows;
  bool transposed;
};

// decoded: the head's weights, [rows, padded cols]; products: [kHeadRows, padded outputs].
void multiply_head(const CpuKernels& kernels, const ConstTensorView& x, const HeadTask& task,
                   const TensorView& y, float* decoded, float* products) {
  const WeightMatrix& w = task.weights;
  const int64_t padded = (w.cols + kernels.lanes - 1) / kernels.lanes * kernels.lanes;
  // The dot products take rows one after the other, the sums want whole vectors.
  const int64_t stride = task.transposed ? padded : w.cols;
  for (int64_t n = 0; n < w.rows; ++n) {
    decode_row(w, n, decoded + n * stride);
    std::fill_n(decoded + n * stride + w.cols, stride - w.cols, 0.0f);
  }
  const float* from = x.row<float>(task.first) + task.head * x.shape[2];
  const int64_t outputs = task.transposed ? w.cols : w.rows;
  const int64_t product_stride = task.transposed ? padded : w.rows;
  if (task.transposed) {
    kernels.weighted_rows(from, x.row_stride, task.rows, decoded, padded, w.rows, products, padded,
                          padded);
  } else {
    kernels.hyper_dots(from, x.row_stride, task.rows, decoded, w.rows, w.cols, products);
  }
  for (int64_t r = 0; r < task.rows; ++r) {
    std::copy_n(products + r * product_stride, outputs,
                y.row<float>(task.first + r) + task.head * y.shape[2]);
  }
}

}  // namespace

void cpu_latent_rotate(const CpuKernels&, Stream& stream, const RotateArgs& args) {
  const int64_t half = args.rotary.rotary_dim / 2;
  const int64_t heads = args.x.shape[1];
  MOTLEY_CHECK(args.y.shape[1] == heads && args.rotary.rotary_dim % 2 == 0 &&
                   args.x.shape[2] >= 2 * half && args.y.shape[2] >= 2 * half,
               "views must match the shape of the heads");
  const Arena::Scope scope(stream.scratch());
  auto* frequencies = stream.scratch().allocate<double>(half);
  for (int64_t i = 0; i < half; ++i) {
    frequencies[i] =
        std::pow(args.rotary.theta, -2.0 * static_cast<double>(i) / args.rotary.rotary_dim);
  }
  auto* angles = stream.scratch().allocate<float>(2 * half * stream.threads().size());
  for (const RowSegment& segment : args.segments) {
    stream.threads().parallel_for(
        segment.rows, row_grain(4 * heads * half), [&](int worker, int64_t begin, int64_t end) {
          float* cosines = angles + 2 * half * worker;
          for (int64_t t = begin; t < end; ++t) {
            const auto position = static_cast<double>(segment.first_position.value + t);
            for (int64_t i = 0; i < half; ++i) {
              cosines[i] = static_cast<float>(std::cos(position * frequencies[i]));
              cosines[half + i] = static_cast<float>(std::sin(position * frequencies[i]));
            }
            const float* x = args.x.row<float>(segment.first_row + t);
            float* y = args.y.row<float>(segment.first_row + t);
            for (int64_t h = 0; h < heads; ++h) {
              rotate_pairs(cosines, cosines + half, half, args.interleaved, x + h * args.x.shape[2],
                           y + h * args.y.shape[2]);
            }
          }
        });
  }
}

void cpu_row_write(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
                   std::span<const RowCacheSegment> segments) {
  for (const RowCacheSegment& segment : segments) {
    const RowCacheView& cache = segment.cache;
    const int64_t width = cache.layout.width;
    MOTLEY_CHECK(x.cols() == width, "rows must match the layout of the cache");
    MOTLEY_CHECK(cache.layout.dtype == DType::kF32 || cache.layout.dtype == DType::kBf16,
                 "the CPU keeps its cache in F32 or BF16");
    stream.threads().parallel_for(
        segment.rows.rows, row_grain(2 * width), [&](int, int64_t begin, int64_t end) {
          for (int64_t t = begin; t < end; ++t) {
            const int64_t position = segment.rows.first_position.value + t;
            if (!cache.shard.holds(position)) continue;
            const float* from = x.row<float>(segment.rows.first_row + t);
            std::byte* to = cache.row(cache.shard.tokens_below(position));
            if (cache.layout.dtype == DType::kBf16) {
              kernels.to_bf16(from, width, reinterpret_cast<uint16_t*>(to));
            } else {
              std::copy_n(from, width, reinterpret_cast<float*>(to));
            }
          }
        });
  }
}

void cpu_head_linear(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
                     std::span<const WeightMatrix> weights, bool transposed, const TensorView& y) {
  const auto heads = std::ssize(weights);
  MOTLEY_CHECK(x.shape[1] == heads && y.shape[1] == heads && x.rows() == y.rows(),
               "one matrix per head");
  int64_t decoded = 0;
  int64_t outputs = 0;
  for (const WeightMatrix& w : weights) {
    MOTLEY_CHECK((transposed ? w.rows : w.cols) <= x.shape[2] &&
                     (transposed ? w.cols : w.rows) <= y.shape[2],
                 "heads must match their matrices");
    const int64_t padded = (w.cols + kernels.lanes - 1) / kernels.lanes * kernels.lanes;
    decoded = std::max(decoded, w.rows * padded);
    outputs = std::max(outputs, std::max(padded, w.rows));
  }
  const int64_t blocks = (x.rows() + kHeadRows - 1) / kHeadRows;
  const Arena::Scope scope(stream.scratch());
  const int64_t floats = decoded + kHeadRows * outputs;
  auto* scratch = stream.scratch().allocate<float>(floats * stream.threads().size());
  stream.threads().parallel_for(heads * blocks, 1, [&](int worker, int64_t begin, int64_t end) {
    float* own = scratch + worker * floats;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kHeadRows;
      const HeadTask task{weights[static_cast<size_t>(i / blocks)], i / blocks, first,
                          std::min(kHeadRows, x.rows() - first), transposed};
      multiply_head(kernels, x, task, y, own, own + decoded);
    }
  });
}

}  // namespace motley
