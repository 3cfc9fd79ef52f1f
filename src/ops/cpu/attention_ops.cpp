// Norm and rotation of heads, cache writes, and the merge of partial attention. The attention
// product itself is in attend.cpp.
#include <cmath>

#include "ops/cpu/cpu_ops.h"

namespace motley {
namespace {

// frequencies[i] = theta^(-2 i / rotary_dim), in double: float32 angles would be off by thousandths
// at positions of 10^5.
void fill_frequencies(const RotaryParams& rotary, double* frequencies) {
  for (int i = 0; i < rotary.rotary_dim / 2; ++i) {
    frequencies[i] = std::pow(rotary.theta, -2.0 * i / rotary.rotary_dim);
  }
}

struct RotaryScratch {
  const double* frequencies;
  float* cosines;
  float* sines;
};

void norm_rotate_row(const CpuKernels& kernels, const HeadNormRotaryArgs& args, int64_t row,
                     int64_t position, const RotaryScratch& scratch) {
  const int64_t half = args.rotary.rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * scratch.frequencies[i];
    scratch.cosines[i] = static_cast<float>(std::cos(angle));
    scratch.sines[i] = static_cast<float>(std::sin(angle));
  }
  const int64_t heads = args.x.shape[1];
  const int64_t stride = args.x.shape[2];
  const int64_t dim = args.y.shape[2];
  for (int64_t h = 0; h < heads; ++h) {
    float* y = args.y.row<float>(row) + h * dim;
    kernels.rms_norm(args.x.row<float>(row) + h * stride, args.weight.as<float>(), dim,
                     args.epsilon, args.weight_offset, y);
    kernels.rotate(scratch.cosines, scratch.sines, half, y);
  }
}

std::byte* cell(const CacheView& cache, int64_t token, int64_t element) {
  std::byte* page = cache.pages[static_cast<size_t>(token / cache.layout.tokens_per_page)];
  return page + element * dtype_bytes(cache.layout.dtype);
}

void write_vector(const CpuKernels& kernels, DType dtype, const float* from, int64_t dim,
                  std::byte* to) {
  if (dtype == DType::kBf16) {
    kernels.to_bf16(from, dim, reinterpret_cast<uint16_t*>(to));
  } else {
    MOTLEY_CHECK(dtype == DType::kF32, "the CPU keeps its cache in F32 or BF16");
    std::copy_n(from, dim, reinterpret_cast<float*>(to));
  }
}

void write_token(const CpuKernels& kernels, const CacheView& cache, int64_t token, const float* k,
                 const float* v) {
  const PageLayout& layout = cache.layout;
  const int slot = static_cast<int>(token % layout.tokens_per_page);
  for (int h = 0; h < layout.kv_heads; ++h) {
    const int64_t start = int64_t{h} * layout.head_dim;
    write_vector(kernels, layout.dtype, k + start, layout.head_dim,
                 cell(cache, token, layout.key_offset(h, slot)));
    write_vector(kernels, layout.dtype, v + start, layout.head_dim,
                 cell(cache, token, layout.value_offset(h, slot)));
  }
}

}  // namespace

void cpu_head_norm_rotary(const CpuKernels& kernels, Stream& stream,
                          const HeadNormRotaryArgs& args) {
  const int64_t dim = args.y.shape[2];
  const int64_t half = args.rotary.rotary_dim / 2;
  MOTLEY_CHECK(args.x.shape[1] == args.y.shape[1] && args.x.shape[2] >= dim &&
                   args.weight.shape.elements() == dim && args.rotary.rotary_dim <= dim,
               "views must match the shape of the heads");
  const Arena::Scope scope(stream.scratch());
  auto* frequencies = stream.scratch().allocate<double>(half);
  fill_frequencies(args.rotary, frequencies);
  auto* angles = stream.scratch().allocate<float>(2 * half * stream.threads().size());
  for (const RowSegment& segment : args.segments) {
    stream.threads().parallel_for(
        segment.rows, row_grain(2 * args.y.cols()), [&](int worker, int64_t begin, int64_t end) {
          float* cosines = angles + 2 * half * worker;
          for (int64_t t = begin; t < end; ++t) {
            norm_rotate_row(kernels, args, segment.first_row + t, segment.first_position.value + t,
                            {frequencies, cosines, cosines + half});
          }
        });
  }
}

void cpu_cache_write(const CpuKernels& kernels, Stream& stream, const ConstTensorView& k,
                     const ConstTensorView& v, std::span<const AttentionSegment> segments) {
  for (const AttentionSegment& segment : segments) {
    const CacheView& cache = segment.cache;
    MOTLEY_CHECK(
        k.cols() == int64_t{cache.layout.kv_heads} * cache.layout.head_dim && v.cols() == k.cols(),
        "keys and values must match the layout of the cache");
    stream.threads().parallel_for(
        segment.rows.rows, row_grain(4 * k.cols()), [&](int, int64_t begin, int64_t end) {
          for (int64_t t = begin; t < end; ++t) {
            const int64_t position = segment.rows.first_position.value + t;
            if (!cache.shard.holds(position)) continue;
            const int64_t row = segment.rows.first_row + t;
            write_token(kernels, cache, cache.shard.tokens_below(position), k.row<float>(row),
                        v.row<float>(row));
          }
        });
  }
}

void cpu_attention_merge(const CpuKernels& kernels, Stream& stream,
                         std::span<const PartialAttention> parts, const PartialAttention& result) {
  const int64_t rows = result.out.shape[0];
  const int64_t heads = result.out.shape[1];
  const int64_t dim = result.out.shape[2];
  const auto count = static_cast<int64_t>(parts.size());
  MOTLEY_CHECK(count > 0, "nothing to merge");
  const Arena::Scope scope(stream.scratch());
  const int64_t workers = stream.threads().size();
  auto** outs = stream.scratch().allocate<const float*>(workers * count);
  auto* lses = stream.scratch().allocate<float>(workers * count);
  stream.threads().parallel_for(
      rows * heads, row_grain(count * dim), [&](int worker, int64_t begin, int64_t end) {
        const float** my_outs = outs + worker * count;
        float* my_lses = lses + worker * count;
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = i / heads;
          const int64_t head = i % heads;
          for (int64_t part = 0; part < count; ++part) {
            const PartialAttention& from = parts[static_cast<size_t>(part)];
            my_outs[part] = from.out.row<float>(row) + head * dim;
            my_lses[part] = from.lse.values.row<float>(row)[head];
          }
          kernels.attention_merge(my_outs, my_lses, count, dim,
                                  result.out.row<float>(row) + head * dim,
                                  result.lse.values.row<float>(row) + head);
        }
      });
}

}  // namespace motley
