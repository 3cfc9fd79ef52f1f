// ops_bench [ISA] [THREADS]: time, rate and share of the machine's limit of each CPU op at the
// shape of Qwen3.5-35B-A3B: decode of one row at a context of 4096, prefill of 512 rows.
//
// Times are the best of many runs. Bytes are what an op must read and write; flops count an fma as
// two.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <vector>

#include "base/owned_context.h"
#include "machine_limits.h"
#include "ops/cpu/cpu_backend.h"
#include "tensor/stream.h"

namespace motley {
namespace {

constexpr int kHidden = 2048, kHeads = 16, kKvHeads = 2, kHeadDim = 256;
constexpr GatedDeltaShape kDelta{16, 32, 128, 128};
constexpr int kExperts = 256, kExpertsPerToken = 8;
constexpr int kContext = 4096;

// With one thread its processor time, so that other programs do not count; otherwise wall time.
double seconds(int threads) {
  timespec now{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Limits {
  double gflops;
  double gbps;
};

class Bench {
 public:
  Bench(CpuIsa isa, int threads)
      : threads_(threads),
        context_(ThreadPoolOptions{.threads = threads}),
        stream_(context_.get()),
        table_(cpu_op_table(isa, NumericProfile::kFast)) {
    const double per_thread_gbps = measure_read_gbps();
    limits_ = {measure_fma_gflops() * threads, per_thread_gbps * threads};
    fmt::print("{} on {} thread(s); one thread: {:.0f} GFLOP/s, {:.1f} GB/s\n", table_.name,
               threads, limits_.gflops / threads, per_thread_gbps);
    fmt::print("{:34} {:>5} {:>10} {:>8} {:>6} {:>8} {:>6}\n", "op", "rows", "us", "GFLOP/s", "%",
               "GB/s", "%");
  }

  void report(const char* name, int64_t rows, double flops, double bytes,
              const std::function<void()>& body) {
    double best = 1e9;
    double spent = 0;
    for (int run = 0; run < 2 || (spent < 0.2 && run < 2000); ++run) {
      const double start = seconds(threads_);
      body();
      const double elapsed = seconds(threads_) - start;
      best = std::min(best, elapsed);
      spent += elapsed;
    }
    const double gflops = flops / best * 1e-9;
    const double gbps = bytes / best * 1e-9;
    fmt::print("{:34} {:>5} {:>10.1f} {:>8.1f} {:>6.0f} {:>8.1f} {:>6.0f}\n", name, rows,
               best * 1e6, gflops, 100 * gflops / limits_.gflops, gbps, 100 * gbps / limits_.gbps);
  }

  TensorView tensor(Shape shape) {
    std::vector<float>& data = storage_.emplace_back(static_cast<size_t>(shape.elements()));
    uint32_t state = 12345;
    for (float& value : data) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
    return view_of(data.data(), shape);
  }

  void element_wise(int64_t rows);
  void convolution(int64_t rows);
  void gated_delta(int64_t rows, bool is_chunked);
  void channel_delta(int64_t rows, bool is_chunked);
  void residual_streams(int64_t rows);
  void attention(int64_t rows, DType dtype);
  void routing(int64_t rows);

 private:
  int threads_;
  OwnedContext context_;
  HostStream stream_;
  OpTable table_;
  Limits limits_{};
  std::vector<std::vector<float>> storage_;
};

void Bench::element_wise(int64_t rows) {
  const auto n = static_cast<double>(rows);
  const TensorView x = tensor({rows, kHidden});
  const TensorView y = tensor({rows, kHidden});
  const TensorView w = tensor({kHidden});
  report("rms_norm", rows, 0, n * 2 * kHidden * 4,
         [&] { table_.norm.rms_norm(stream_, x, w, {}, y); });
  report("add", rows, 0, n * 3 * kHidden * 4, [&] { table_.norm.add(stream_, x, x); });
  const int64_t value_dim = kDelta.value_dim();
  const TensorView wide = tensor({rows, value_dim});
  const TensorView gate = tensor({rows, value_dim});
  const TensorView head_weight = tensor({kDelta.value_head_dim});
  report("gated_rms_norm", rows, 0, n * 3 * static_cast<double>(value_dim) * 4,
         [&] { table_.norm.gated_rms_norm(stream_, wide, gate, head_weight, {}, wide); });
  const TensorView q = tensor({rows, kHeads, 2 * kHeadDim});
  const TensorView q_out = tensor({rows, kHeads, kHeadDim});
  const TensorView norm_weight = tensor({kHeadDim});
  const RowSegment segment{RowRole::kPrefill, 0, static_cast<int32_t>(rows), {kContext}};
  report("head_norm_rotary q", rows, 0, n * 2 * kHeads * kHeadDim * 4, [&] {
    table_.attention.head_norm_rotary(
        stream_, {q, norm_weight, 1e-6f, 1.0f, {64, 1e7}, {&segment, 1}, q_out});
  });
  std::fill_n(q.as<float>(), q.shape.elements(), 100.0f);  // y keeps its size over the runs
  report("sigmoid_multiply gate", rows, 0, n * 3 * kHeads * kHeadDim * 4,
         [&] { table_.norm.sigmoid_multiply(stream_, q, q_out); });
}

void Bench::convolution(int64_t rows) {
  const int64_t channels = kDelta.conv_dim();
  const TensorView u = tensor({rows, channels});
  const TensorView y = tensor({rows, channels});
  const TensorView weight = tensor({channels, 4});
  const ConvolutionSegment segment{{RowRole::kPrefill, 0, static_cast<int32_t>(rows), {0}},
                                   tensor({3, channels})};
  report("causal_convolution", rows, 0, static_cast<double>((2 * rows + 10) * channels) * 4,
         [&] { table_.convolution.causal_convolution(stream_, u, weight, {&segment, 1}, y); });
}

void Bench::gated_delta(int64_t rows, bool is_chunked) {
  int32_t carried = 0;
  const GatedDeltaSegment segment{
      {RowRole::kPrefill, 0, static_cast<int32_t>(rows), {0}},
      tensor({kDelta.value_heads, kDelta.key_head_dim, kDelta.value_head_dim}),
      {&carried, tensor({kDeltaBlock, kDelta.key_dim()}), tensor({kDeltaBlock, kDelta.value_dim()}),
       tensor({kDeltaBlock, kDelta.value_heads})}};
  const GatedDeltaArgs args{kDelta,
                            tensor({rows, kDelta.conv_dim()}),
                            tensor({rows, kDelta.value_heads}),
                            tensor({rows, kDelta.value_heads}),
                            tensor({kDelta.value_heads}),
                            tensor({kDelta.value_heads}),
                            {&segment, 1},
                            tensor({rows, kDelta.value_dim()})};
  const auto cells = static_cast<double>(kDelta.value_dim() * kDelta.key_head_dim);
  report(is_chunked ? "gated_delta chunked" : "gated_delta recurrent", rows,
         static_cast<double>(rows) * cells * 8, cells * 8, [&] {
           (is_chunked ? table_.gated_delta.chunked : table_.gated_delta.recurrent)(stream_, args);
         });
}

// 64 heads of 128: a layer of the size of GLM-5.3-Flash's.
void Bench::channel_delta(int64_t rows, bool is_chunked) {
  constexpr ChannelDeltaShape kShape{64, 128, 128};
  int32_t carried = 0;
  const ChannelDeltaSegment segment{
      {RowRole::kPrefill, 0, static_cast<int32_t>(rows), {0}},
      tensor({kShape.heads, kShape.key_head_dim, kShape.value_head_dim}),
      {&carried, tensor({kDeltaBlock, kShape.key_dim()}), tensor({kDeltaBlock, kShape.value_dim()}),
       tensor({1, kShape.key_dim()})}};
  ChannelDeltaArgs args{.shape = kShape};
  args.qkv = tensor({rows, kShape.conv_dim()});
  args.beta = tensor({rows, kShape.heads});
  args.decay = tensor({rows, kShape.key_dim()});
  args.a_log = tensor({kShape.heads});
  args.dt_bias = tensor({kShape.key_dim()});
  args.segments = {&segment, 1};
  args.out = tensor({rows, kShape.value_dim()});
  const auto cells = static_cast<double>(kShape.value_dim() * kShape.key_head_dim);
  const auto& ops = table_.channel_delta;
  report(is_chunked ? "channel_delta chunked" : "channel_delta recurrent", rows,
         static_cast<double>(rows) * cells * 8, cells * 8,
         [&] { (is_chunked ? ops.chunked : ops.recurrent)(stream_, args); });
}

// Four streams of 4096: mix and merge of one mixer or feed-forward.
void Bench::residual_streams(int64_t rows) {
  constexpr int64_t kWidth = 4096;
  const HyperParams params{};
  const TensorView streams = tensor({rows, params.streams, kWidth});
  const TensorView x = tensor({rows, kWidth});
  const TensorView coefficients = tensor({rows, params.coefficients()});
  const HyperWeights weights{tensor({params.coefficients(), params.streams * kWidth}),
                             tensor({params.coefficients()}), tensor({3})};
  const auto values = static_cast<double>(rows * params.streams * kWidth);
  const double weight_bytes = 4.0 * static_cast<double>(weights.fn.shape.elements());
  report("hyper.mix", rows, values * 50, values * 5 + weight_bytes,
         [&] { table_.hyper.mix(stream_, streams, weights, params, coefficients, x); });
  report("hyper.merge", rows, values * 10, values * 9,
         [&] { table_.hyper.merge(stream_, x, coefficients, streams); });
}

void Bench::attention(int64_t rows, DType dtype) {
  const PageLayout layout{64, kKvHeads, kHeadDim, dtype};
  const int64_t tokens = kContext + rows;
  std::vector<std::vector<std::byte>> storage;
  std::vector<std::byte*> pages;
  for (int64_t t = 0; t < tokens; t += 64) {
    storage.emplace_back(static_cast<size_t>(layout.page_bytes()));
    pages.push_back(storage.back().data());
  }
  const TensorView k = tensor({rows, kKvHeads, kHeadDim});
  const AttentionSegment segment{{RowRole::kPrefill, 0, static_cast<int32_t>(rows), {kContext}},
                                 {pages, layout, {}, tokens}};
  const auto row_bytes = static_cast<double>(2 * kKvHeads * kHeadDim * dtype_bytes(dtype));
  const bool is_bf16 = dtype == DType::kBf16;
  report(is_bf16 ? "cache_write bf16" : "cache_write f32", rows, 0,
         static_cast<double>(rows) * (row_bytes + 2 * kKvHeads * kHeadDim * 4),
         [&] { table_.attention.cache_write(stream_, k, k, {&segment, 1}); });
  const AttentionArgs args{tensor({rows, kHeads, kHeadDim}),
                           kKvHeads,
                           0.0625f,
                           {&segment, 1},
                           {tensor({rows, kHeads, kHeadDim}), {tensor({rows, kHeads})}}};
  const double seen = kContext + static_cast<double>(rows + 1) / 2;
  report(is_bf16 ? "attend bf16" : "attend f32", rows,
         static_cast<double>(rows) * seen * kHeads * kHeadDim * 4,
         static_cast<double>(tokens) * row_bytes, [&] { table_.attention.attend(stream_, args); });
}

void Bench::routing(int64_t rows) {
  std::vector<int32_t> ids(static_cast<size_t>(rows * kExpertsPerToken));
  const TensorView logits = tensor({rows, kExperts});
  const Routing routing{view_of(ids.data(), {rows, kExpertsPerToken}),
                        tensor({rows, kExpertsPerToken})};
  const auto n = static_cast<double>(rows);
  report("route_softmax", rows, 0, n * kExperts * 4,
         [&] { table_.moe.route_softmax(stream_, logits, {kExpertsPerToken, true}, {}, routing); });
  const TensorView pairs = tensor({rows * kExpertsPerToken, kHidden});
  const TensorView y = tensor({rows, kHidden});
  report("combine", rows, 0, n * (kExpertsPerToken + 2) * kHidden * 4,
         [&] { table_.moe.combine(stream_, pairs, routing, y, y); });
}

int run(int argc, char** argv) {
  Result<CpuIsa> isa = choose_cpu_isa(argc > 1 ? argv[1] : "");
  if (!isa.is_ok()) {
    fmt::print(stderr, "{}\n", isa.status().message());
    return 1;
  }
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  Bench bench(*isa, std::max(threads, 1));
  for (const int64_t rows : {1, 512}) {
    bench.element_wise(rows);
    bench.convolution(rows);
    bench.gated_delta(rows, false);
    if (rows > 1) bench.gated_delta(rows, true);
    bench.channel_delta(rows, false);
    if (rows > 1) bench.channel_delta(rows, true);
    bench.residual_streams(rows);
    bench.attention(rows, DType::kF32);
    bench.attention(rows, DType::kBf16);
    bench.routing(rows);
  }
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  return motley::run(argc, argv);
}
