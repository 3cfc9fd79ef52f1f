// Timings of latent attention and the indexer: 64 heads, rank 512 and 64 rotated elements, 2048
// selected keys, 64 index heads of 128.
#include <string>

#include "ops_device/bench.h"

namespace motley::ops_device {
namespace {

constexpr int64_t kHeads = 64;
constexpr int kRank = 512;
constexpr int kWidth = 576;
constexpr int64_t kSelected = 2048;
constexpr int kIndexDim = 128;

// Sequences of `context` rows, one per decode row, or one for all prefill rows.
struct Caches {
  std::vector<std::vector<std::byte*>> pages;
  std::vector<RowCacheSegment> segments;
};

Caches make_caches(Bench& bench, RowRole role, int32_t rows, int64_t context, int width) {
  Caches caches;
  const RowCacheLayout layout{64, width, DType::kBf16};
  const int32_t sequences = role == RowRole::kDecode ? rows : 1;
  for (int32_t s = 0; s < sequences; ++s) {
    std::vector<std::byte*> pages;
    for (int64_t row = 0; row < context; row += layout.rows_per_page) {
      pages.push_back(bench.random_bf16(layout.page_bytes() / 2));
    }
    caches.pages.push_back(std::move(pages));
  }
  const int32_t count = role == RowRole::kDecode ? 1 : rows;
  for (int32_t s = 0; s < sequences; ++s) {
    const RowCacheView view{
        caches.pages[static_cast<size_t>(s)], layout, {}, context, MemorySpace::kDevice};
    caches.segments.push_back({{role, s, count, {context - count}}, view});
  }
  return caches;
}

// Evenly spread keys of a context.
KeySelection spread_keys(Bench& bench, int32_t rows, int64_t context) {
  std::vector<int32_t> positions;
  for (int32_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < kSelected; ++i) {
      positions.push_back(static_cast<int32_t>((i * context + (row * 37) % context) / kSelected));
    }
  }
  return {bench.ints({rows, kSelected}, positions),
          bench.ints({rows}, std::vector<int32_t>(static_cast<size_t>(rows), kSelected))};
}

void bench_attend(Bench& bench, RowRole role, int32_t rows, int64_t context, bool selected) {
  const std::string name = std::string("latent ") +
                           (role == RowRole::kDecode ? "decode, rows " : "prefill, rows ") +
                           std::to_string(rows) + ", context " + std::to_string(context) +
                           (selected ? ", 2048 keys" : "");
  if (!bench.wants(name)) return;
  const Caches caches = make_caches(bench, role, rows, context, kWidth);
  LatentAttentionArgs args;
  args.q = bench.tensor({rows, kHeads, kWidth});
  args.rank = kRank;
  args.scale = 0.04f;
  args.segments = caches.segments;
  if (selected) args.selection = spread_keys(bench, rows, context - rows + 1);
  args.result = {bench.tensor({rows, kHeads, kRank}), {bench.tensor({rows, kHeads})}};
  const auto keys = static_cast<double>(rows * (selected ? kSelected : context));
  const double bytes =
      role == RowRole::kDecode ? 2 * keys * kWidth : 2.0 * static_cast<double>(context) * kWidth;
  bench.measure(name, bytes, 2 * keys * kHeads * (kWidth + kRank), 4,
                [&](int) { bench.ops().latent.attend(bench.stream(), args); });
  bench.release();
}

void bench_index(Bench& bench, RowRole role, int32_t rows, int64_t context) {
  const std::string suffix = std::string(role == RowRole::kDecode ? ", decode" : ", prefill") +
                             " rows " + std::to_string(rows) + ", context " +
                             std::to_string(context);
  if (!bench.wants("index scores" + suffix)) return;
  const Caches caches = make_caches(bench, role, rows, context, kIndexDim);
  IndexScoresArgs args;
  args.q = bench.tensor({rows, kHeads, kIndexDim});
  args.weights = bench.tensor({rows, kHeads});
  args.segments = caches.segments;
  args.scores = bench.tensor({rows, context});
  const auto keys = static_cast<double>(rows * context);
  const double cache_rows = role == RowRole::kDecode ? keys : static_cast<double>(context);
  bench.measure("index scores" + suffix, 2 * cache_rows * kIndexDim + 4 * keys,
                2 * keys * kHeads * kIndexDim, 4,
                [&](int) { bench.ops().index.scores(bench.stream(), args); });
  IndexSelectArgs select;
  select.scores = args.scores;
  select.candidates = bench.ints(
      {rows}, std::vector<int32_t>(static_cast<size_t>(rows), static_cast<int32_t>(context)));
  select.chosen = bench.ints({rows, kSelected}, {0});
  select.counts = bench.ints({rows}, {0});
  bench.measure("index select" + suffix, 4 * keys, 0, 4,
                [&](int) { bench.ops().index.select(bench.stream(), select); });
  bench.release();
}

void bench_head_linear(Bench& bench, int64_t rows) {
  const std::string name = "latent head_linear 4 bit 192x512, rows " + std::to_string(rows);
  if (!bench.wants(name)) return;
  const WeightKind four{WeightFormat::kMlxAffine, 4, 64, DType::kBf16};
  const std::vector<WeightMatrix> weights = bench.weights(four, 192, kRank, kHeads);
  const TensorView x = bench.tensor({rows, kHeads, 192});
  const TensorView y = bench.tensor({rows, kHeads, kRank});
  const double weight_bytes = static_cast<double>(kHeads * weights[0].bytes());
  bench.measure(name, weight_bytes + 4.0 * static_cast<double>(rows * kHeads * (192 + kRank)),
                2.0 * static_cast<double>(rows * kHeads * 192 * kRank), 4,
                [&](int) { bench.ops().latent.head_linear(bench.stream(), x, weights, true, y); });
  bench.release();
}

}  // namespace

void bench_latent(Bench& bench) {
  if (bench.ops().latent.attend == nullptr) return;
  for (const int32_t rows : {1, 16}) {
    for (const int64_t context : {16384, 131072}) {
      bench_attend(bench, RowRole::kDecode, rows, context, true);
    }
  }
  bench_attend(bench, RowRole::kDecode, 1, 32768, false);
  bench_attend(bench, RowRole::kPrefill, 1024, 16384, true);
  bench_attend(bench, RowRole::kPrefill, 1024, 131072, true);
  for (const int64_t context : {16384, 131072}) {
    bench_index(bench, RowRole::kDecode, 1, context);
    bench_index(bench, RowRole::kPrefill, 1024, context);
  }
  for (const int64_t rows : {1, 16, 1024}) bench_head_linear(bench, rows);
}

}  // namespace motley::ops_device
