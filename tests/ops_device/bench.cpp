// Timings at the shapes of a 397B-A17B model (hidden 4096, 512 experts of 1024, 10 per token), with
// the bytes that the op must move against the measured copy bandwidth, and the operations against
// the measured bf16 matrix rate.
#include "ops_device/bench.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

#include "numeric/half.h"

namespace motley::ops_device {
namespace {

constexpr int64_t kHidden = 4096;
constexpr int64_t kExperts = 512;
constexpr int kChosen = 10;
constexpr int64_t kIntermediate = 1024;

void bench_dense_rows(Bench& bench, const WeightKind& kind, const char* name, int64_t out,
                      int64_t in) {
  if (!bench.wants(std::string("linear ") + name + ", rows")) return;
  const WeightMatrix one = bench.weights(kind, out, in, 1)[0];
  // Enough copies that no repeat finds its weights in the cache.
  const auto copies = static_cast<int>(std::max<int64_t>(1, (int64_t{400} << 20) / one.bytes()));
  const std::vector<WeightMatrix> weights = bench.weights(kind, out, in, copies);
  for (const int64_t rows : {1, 4, 16}) {
    const TensorView x = bench.tensor({rows, in});
    const TensorView y = bench.tensor({rows, out});
    bench.measure(std::string("linear ") + name + ", rows " + std::to_string(rows),
                  static_cast<double>(one.bytes()), 2.0 * static_cast<double>(rows * out * in),
                  std::max(4, copies), [&](int i) {
                    const LinearTarget target{weights[static_cast<size_t>(i % copies)], y};
                    bench.ops().linear.linear(bench.stream(), x, {rows, 0}, {&target, 1});
                  });
  }
  bench.release();
}

// Routing of one repeat: rows choose distinct random experts.
struct Choice {
  std::vector<std::vector<int32_t>> pairs;  // by expert
  std::vector<ExpertWork> work;
};

std::vector<Choice> random_choices(Bench& bench, const std::vector<ExpertWeights>& experts,
                                   int64_t rows, int count) {
  std::vector<Choice> choices(static_cast<size_t>(count));
  std::vector<int32_t> order(experts.size());
  for (Choice& choice : choices) {
    choice.pairs.resize(experts.size());
    for (int64_t row = 0; row < rows; ++row) {
      std::iota(order.begin(), order.end(), 0);
      for (int slot = 0; slot < kChosen; ++slot) {
        const auto at = static_cast<size_t>(
            bench.random().integer(slot, static_cast<int64_t>(experts.size()) - 1));
        std::swap(order[static_cast<size_t>(slot)], order[at]);
        choice.pairs[static_cast<size_t>(order[static_cast<size_t>(slot)])].push_back(
            static_cast<int32_t>(row * kChosen + slot));
      }
    }
    for (size_t e = 0; e < experts.size(); ++e) {
      if (!choice.pairs[e].empty()) choice.work.push_back({&experts[e], choice.pairs[e]});
    }
  }
  return choices;
}

void bench_experts(Bench& bench, const WeightKind& kind, const char* name) {
  if (!bench.wants(std::string("experts ") + name)) return;
  const auto gate = bench.weights(kind, kIntermediate, kHidden, kExperts);
  const auto up = bench.weights(kind, kIntermediate, kHidden, kExperts);
  const auto down = bench.weights(kind, kHidden, kIntermediate, kExperts);
  std::vector<ExpertWeights> experts;
  for (size_t e = 0; e < gate.size(); ++e) experts.push_back({gate[e], up[e], down[e]});
  const auto expert_bytes = static_cast<double>(2 * gate[0].bytes() + down[0].bytes());
  for (const int64_t rows : {1, 4, 16, 8192}) {
    const bool prefill = rows > 16;
    const int repeats = prefill ? 2 : 16;
    const std::vector<Choice> choices = random_choices(bench, experts, rows, repeats);
    double used = 0;
    for (const Choice& choice : choices) used += static_cast<double>(choice.work.size());
    const TensorView x = bench.tensor({rows, kHidden});
    const TensorView out = bench.tensor({rows * kChosen, kHidden});
    const RowCounts counts = prefill ? RowCounts{0, rows} : RowCounts{rows, 0};
    bench.measure(std::string("experts ") + name + ", rows " + std::to_string(rows),
                  expert_bytes * used / repeats,
                  6.0 * static_cast<double>(rows * kChosen * kHidden * kIntermediate), repeats,
                  [&](int i) {
                    bench.ops().moe.experts(bench.stream(), x, counts, {kChosen},
                                            choices[static_cast<size_t>(i)].work, out);
                  });
  }
  bench.release();
}

void bench_dense_prefill(Bench& bench, const WeightKind& kind, const char* name) {
  if (!bench.wants(std::string("linear ") + name + ", prefill 8192")) return;
  constexpr int64_t kRows = 8192;
  constexpr int64_t kOut = 12288;
  const WeightMatrix weights = bench.weights(kind, kOut, kHidden, 1)[0];
  const TensorView x = bench.tensor({kRows, kHidden});
  const TensorView y = bench.tensor({kRows, kOut});
  const LinearTarget target{weights, y};
  bench.measure(std::string("linear ") + name + ", prefill 8192",
                static_cast<double>(weights.bytes() + 4 * kRows * (kHidden + kOut)),
                2.0 * static_cast<double>(kRows * kOut * kHidden), 4, [&](int) {
                  bench.ops().linear.linear(bench.stream(), x, {0, kRows}, {&target, 1});
                });
  bench.release();
}

void bench_attention(Bench& bench, int64_t context, int32_t rows, RowRole role) {
  const std::string name =
      (role == RowRole::kDecode ? "attend decode, rows " : "attend prefill, rows ") +
      std::to_string(rows) + ", context " + std::to_string(context);
  if (!bench.wants(name)) return;
  constexpr int kHeads = 32;
  constexpr int kKvHeads = 2;
  constexpr int kDim = 256;
  const PageLayout layout{64, kKvHeads, kDim, DType::kBf16};
  const int32_t sequences = role == RowRole::kDecode ? rows : 1;
  std::vector<std::vector<std::byte*>> pages(static_cast<size_t>(sequences));
  std::vector<AttentionSegment> segments;
  for (std::vector<std::byte*>& list : pages) {
    for (int64_t page = 0; page * 64 < context; ++page) {
      list.push_back(bench.random_bf16(layout.page_bytes() / 2));
    }
  }
  for (int32_t s = 0; s < sequences; ++s) {
    const int32_t count = role == RowRole::kDecode ? 1 : rows;
    segments.push_back(
        {{role, s, count, {context - count}},
         {pages[static_cast<size_t>(s)], layout, {}, context, MemorySpace::kDevice}});
  }
  const TensorView q = bench.tensor({rows, kHeads, kDim});
  AttentionArgs args;
  args.q = q;
  args.kv_heads = kKvHeads;
  args.scale = 1.0f / 16;
  args.segments = segments;
  args.result = {bench.tensor({rows, kHeads, kDim}), {bench.tensor({rows, kHeads})}};
  const double keys = role == RowRole::kDecode
                          ? static_cast<double>(rows * context)
                          : static_cast<double>(rows) *
                                (static_cast<double>(context) - 0.5 * static_cast<double>(rows));
  const double bytes = static_cast<double>(sequences * context) * 2 * kKvHeads * kDim * 2;
  bench.measure(name, bytes, 4.0 * keys * kHeads * kDim, 4,
                [&](int) { bench.ops().attention.attend(bench.stream(), args); });
  bench.release();
}

void bench_delta(Bench& bench, int32_t rows, bool chunked) {
  const std::string name = std::string("gated_delta ") + (chunked ? "chunked" : "recurrent") +
                           ", rows " + std::to_string(rows);
  if (!bench.wants(name)) return;
  const GatedDeltaShape shape{16, 64, 128, 128};
  const int32_t sequences = chunked ? 1 : rows;
  std::vector<GatedDeltaSegment> segments;
  int32_t held = 0;
  const DeltaCarry carry{&held, bench.tensor({kDeltaBlock, shape.key_dim()}),
                         bench.tensor({kDeltaBlock, shape.value_dim()}),
                         bench.tensor({kDeltaBlock, shape.value_heads})};
  for (int32_t s = 0; s < sequences; ++s) {
    const RowRole role = chunked ? RowRole::kPrefill : RowRole::kDecode;
    segments.push_back({{role, s, chunked ? rows : 1, {}},
                        bench.tensor({shape.value_heads, 128, 128}),
                        chunked ? carry : DeltaCarry{}});
  }
  const GatedDeltaArgs args{shape,
                            bench.tensor({rows, shape.conv_dim()}),
                            bench.tensor({rows, shape.value_heads}),
                            bench.tensor({rows, shape.value_heads}),
                            bench.tensor({shape.value_heads}),
                            bench.tensor({shape.value_heads}),
                            segments,
                            bench.tensor({rows, shape.value_dim()})};
  const double state_bytes = 8.0 * static_cast<double>(sequences * shape.value_dim()) * 128;
  const double row_bytes = 4.0 * static_cast<double>(rows * (shape.conv_dim() + shape.value_dim()));
  // Per token and head: three products with the state.
  const double flops = 6.0 * rows * static_cast<double>(shape.value_dim()) * 128;
  const auto op = chunked ? bench.ops().gated_delta.chunked : bench.ops().gated_delta.recurrent;
  if (op == nullptr) return;
  bench.measure(name, state_bytes + row_bytes, flops, 4, [&](int) { op(bench.stream(), args); });
  bench.release();
}

void bench_small_ops(Bench& bench, int64_t rows) {
  const std::array<const char*, 5> names{"rms_norm", "gated_rms_norm", "causal_convolution",
                                         "route_softmax", "combine"};
  if (std::none_of(names.begin(), names.end(), [&](auto name) { return bench.wants(name); }))
    return;
  const OpTable& ops = bench.ops();
  const std::string suffix = ", rows " + std::to_string(rows);
  const auto floats = [](int64_t count) { return 4.0 * static_cast<double>(count); };
  const TensorView x = bench.tensor({rows, kHidden});
  const TensorView y = bench.tensor({rows, kHidden});
  const TensorView weight = bench.tensor({kHidden});
  bench.measure("rms_norm" + suffix, floats(2 * rows * kHidden), 0, 8,
                [&](int) { ops.norm.rms_norm(bench.stream(), x, weight, {}, y); });
  const TensorView wide = bench.tensor({rows, 8192});
  const TensorView gate = bench.tensor({rows, 8192});
  const TensorView head_weight = bench.tensor({128});
  bench.measure("gated_rms_norm" + suffix, floats(3 * rows * 8192), 0, 8, [&](int) {
    ops.norm.gated_rms_norm(bench.stream(), wide, gate, head_weight, {}, wide);
  });
  const TensorView u = bench.tensor({rows, 12288});
  const TensorView v = bench.tensor({rows, 12288});
  const TensorView taps = bench.tensor({12288, 4});
  const TensorView window = bench.tensor({3, 12288});
  const ConvolutionSegment segment{{RowRole::kPrefill, 0, static_cast<int32_t>(rows), {}}, window};
  bench.measure("causal_convolution" + suffix, floats(2 * rows * 12288), 0, 8, [&](int) {
    ops.convolution.causal_convolution(bench.stream(), u, taps, {&segment, 1}, v);
  });
  const TensorView logits = bench.tensor({rows, kExperts});
  const Routing routing{bench.ints({rows, kChosen}, {0}), bench.tensor({rows, kChosen})};
  bench.measure("route_softmax" + suffix, floats(rows * kExperts), 0, 8, [&](int) {
    ops.moe.route_softmax(bench.stream(), logits, {kChosen, true}, {}, routing);
  });
  const TensorView pair_out = bench.tensor({rows * kChosen, kHidden});
  bench.measure("combine" + suffix, floats(rows * kHidden * (kChosen + 2)), 0, 8,
                [&](int) { ops.moe.combine(bench.stream(), pair_out, routing, x, y); });
  bench.release();
}

}  // namespace

void run_benchmarks(Backend& backend, double matrix_flops_per_s, const std::string& only) {
  Bench bench(backend, matrix_flops_per_s, only);
  const WeightKind four{WeightFormat::kMlxAffine, 4, 64, DType::kBf16};
  const WeightKind eight{WeightFormat::kMlxAffine, 8, 64, DType::kBf16};
  const WeightKind plain{WeightFormat::kBf16, 16, 64, DType::kBf16};
  bench.header();
  bench_dense_rows(bench, four, "4 bit 12288x4096", 12288, kHidden);
  bench_dense_rows(bench, four, "4 bit 4096x8192", kHidden, 8192);
  bench_dense_rows(bench, four, "4 bit head", 248320, kHidden);
  bench_dense_rows(bench, eight, "8 bit 12288x4096", 12288, kHidden);
  bench_dense_rows(bench, plain, "BF16 12288x4096", 12288, kHidden);
  bench_experts(bench, four, "4 bit");
  bench_dense_prefill(bench, four, "4 bit");
  bench_dense_prefill(bench, eight, "8 bit");
  bench_dense_prefill(bench, plain, "BF16");
  for (const int64_t context : {4096, 32768, 131072}) {
    bench_attention(bench, context, 1, RowRole::kDecode);
  }
  bench_attention(bench, 32768, 16, RowRole::kDecode);
  bench_attention(bench, 8192, 8192, RowRole::kPrefill);
  for (const int32_t rows : {1, 16}) bench_delta(bench, rows, false);
  bench_delta(bench, 8192, true);
  for (const int32_t rows : {1, 16}) bench_channel_delta(bench, rows, false);
  bench_channel_delta(bench, 8192, true);
  for (const int64_t rows : {1, 8192}) bench_hyper(bench, rows);
  bench_latent(bench);
  bench_small_ops(bench, 1);
  bench_small_ops(bench, 8192);
}

}  // namespace motley::ops_device
