// The indexer: norm of its keys, scores, and the choice of the best.
#include <cmath>

#include "ops_device/row_caches.h"

namespace motley::ops_device {
namespace {

void layer_norm_case(Harness& h, const IndexOps& ops) {
  const int64_t rows = h.random().integer(1, 40);
  const int64_t dim = h.random().integer(1, 600);
  Twin x = h.random_twin({rows, dim}, 3.0);
  const Twin weight = h.random_twin({dim});
  const Twin bias = h.random_twin({dim});
  const std::vector<float> weight_f32(weight.values.begin(), weight.values.end());
  const std::vector<float> bias_f32(bias.values.begin(), bias.values.end());
  ops.layer_norm(h.device(), x.device, weight.device, bias.device, 1e-3f, x.device);
  h.reference().index.layer_norm(h.host(), x.reference, view_of(weight_f32.data(), {dim}),
                                 view_of(bias_f32.data(), {dim}), 1e-3f, x.reference);
  h.check(x, 1e-5);
  h.end_case();
}

void scores_case(Harness& h, const IndexOps& ops, int64_t heads, int dim, DType dtype) {
  const auto rows = static_cast<int32_t>(h.random().integer(1, 20));
  const int64_t tokens = h.random().pick({3, 100, 700}) + rows;
  const int pool = static_cast<int>(h.random().pick({1, 1, 4}));
  const RowCacheLayout layout{64 / pool, dim, dtype};
  const TwinRowCache cache = random_row_cache(h, layout, {}, tokens / pool + 1);
  Twin q = h.random_twin({rows, heads, dim});
  Twin weights = h.random_twin({rows, heads});
  Twin scores = h.random_twin({rows, tokens / pool + 5});  // what is not written stays
  const RowSegment segment{RowRole::kPrefill, 0, rows, {tokens - rows}};
  const RowCacheSegment on_device{segment, cache.device_view({}, h.device().space())};
  const RowCacheSegment on_host{segment, cache.host_view({})};
  IndexScoresArgs args;
  args.q = q.device;
  args.weights = weights.device;
  args.scale = 0.25f;
  args.segments = {&on_device, 1};
  args.tokens_per_key = pool;
  args.scores = scores.device;
  ops.scores(h.device(), args);
  args.q = q.reference;
  args.weights = weights.reference;
  args.segments = {&on_host, 1};
  args.scores = scores.reference;
  h.reference().index.scores(h.host(), args);
  h.check(scores, 4e-5);
  h.end_case();
}

void select_case(Harness& h, const IndexOps& ops) {
  const int64_t rows = h.random().integer(1, 8);
  const int64_t width = h.random().pick({10, 500, 5000, 40000});
  const int64_t top_k = h.random().pick({1, 64, 512, 2048});
  Twin scores = h.random_twin({rows, width});
  // Many equal ones, zeros of both signs and some that are no numbers.
  std::vector<float> values(scores.values.begin(), scores.values.end());
  for (float& value : values) {
    value = std::round(value * 8.0f) / 8.0f;
    if (h.random().integer(0, 1) == 0) value = std::copysign(0.0f, value);
    if (h.random().integer(0, 200) == 0) value = NAN;
  }
  scores.values.assign(values.begin(), values.end());
  h.backend().upload(scores.device.data, values.data(), values.size() * sizeof(float));
  std::vector<int32_t> candidates;
  for (int64_t row = 0; row < rows; ++row) {
    candidates.push_back(static_cast<int32_t>(h.random().integer(0, width)));
  }
  const Shape shape{rows, top_k};
  std::vector<int32_t> forced(static_cast<size_t>(rows * top_k), -1);
  for (int32_t i = 0; i < top_k / 2; ++i) forced[static_cast<size_t>(i)] = 2 * i;
  std::vector<int32_t> chosen(forced.size(), 7);
  std::vector<int32_t> counts(static_cast<size_t>(rows), 0);
  const bool force = h.random().integer(0, 1) == 1;
  IndexSelectArgs args;
  args.scores = scores.device;
  args.candidates = h.upload_ints(candidates, {rows});
  if (force) args.forced = h.upload_ints(forced, shape);
  args.chosen = h.upload_ints(chosen, shape);
  args.counts = h.upload_ints(counts, {rows});
  const TensorView chosen_device = args.chosen;
  const TensorView counts_device = args.counts;
  ops.select(h.device(), args);
  args.scores = scores.reference;
  args.candidates = view_of(candidates.data(), {rows});
  if (force) args.forced = view_of(forced.data(), shape);
  args.chosen = view_of(chosen.data(), shape);
  args.counts = view_of(counts.data(), {rows});
  h.reference().index.select(h.host(), args);
  h.device().synchronize();
  h.check_true(h.fetch_ints(chosen_device) == chosen);
  h.check_true(h.fetch_ints(counts_device) == counts);
  h.end_case();
}

// Rows in one call and cut in two give the same keys, rings and reference.
void pool_keys_case(Harness& h, const IndexPoolOps& ops) {
  const auto rows = static_cast<int32_t>(h.random().integer(2, 60));
  const auto cut = static_cast<int32_t>(h.random().integer(1, rows - 1));
  const int64_t pool = h.random().pick({1, 4, 8});
  const int64_t dim = h.random().pick({20, 128, 200});
  const int64_t first = h.random().integer(0, 20);
  const Twin k = h.random_twin({rows, dim});
  const Twin gate = h.random_twin({rows, dim});
  const Twin ape = h.random_twin({pool, dim});
  const std::vector<float> ape_f32(ape.values.begin(), ape.values.end());
  Twin ring = h.random_twin({index_ring_rows(pool), 2 * dim});
  const Twin cut_ring = h.output_twin(ring.shape);
  const std::vector<float> before = h.fetch(ring.device);
  h.backend().upload(cut_ring.device.data, before.data(), before.size() * sizeof(float));
  const RowSegment whole{RowRole::kPrefill, 0, rows, {first}};
  const int64_t count = completed_pools(whole, pool).count;
  Twin keys = h.output_twin({count + 1, dim});
  const Twin cut_keys = h.output_twin({count + 1, dim});
  const IndexPoolSegment on_device{whole, ring.device};
  const IndexPoolSegment on_host{whole, ring.reference};
  const TensorView made = keys.device.slice_rows(0, count);
  ops.pool_keys(h.device(), k.device, gate.device, ape.device, {&on_device, 1}, made);
  h.reference().index_pool.pool_keys(h.host(), k.reference, gate.reference,
                                     view_of(ape_f32.data(), {pool, dim}), {&on_host, 1},
                                     keys.reference);
  int64_t done = 0;
  for (const RowSegment& part : {RowSegment{RowRole::kPrefill, 0, cut, {first}},
                                 RowSegment{RowRole::kPrefill, cut, rows - cut, {first + cut}}}) {
    const IndexPoolSegment segment{part, cut_ring.device};
    const int64_t pools = completed_pools(part, pool).count;
    ops.pool_keys(h.device(), k.device, gate.device, ape.device, {&segment, 1},
                  cut_keys.device.slice_rows(done, pools));
    done += pools;
  }
  h.check(ring, 0.0);
  const std::vector<float> all = h.fetch(made);
  h.check_true(all == h.fetch(cut_keys.device.slice_rows(0, count)));
  h.check_true(h.fetch(ring.device) == h.fetch(cut_ring.device));
  for (size_t i = 0; i < all.size(); ++i) {
    h.check_true(std::fabs(double{all[i]} - keys.values[i]) <= 1e-5);
  }
  h.end_case();
}

void pool_tokens_case(Harness& h, const IndexPoolOps& ops) {
  const auto rows = static_cast<int32_t>(h.random().integer(1, 20));
  const int64_t pool = h.random().pick({1, 4});
  const int64_t top = h.random().integer(1, 9);
  PoolTokensArgs args;
  args.pool = pool;
  args.tail = h.random().integer(0, 1) == 1;
  const RowSegment segment{RowRole::kPrefill, 0, rows, {h.random().integer(40, 90)}};
  args.segments = {&segment, 1};
  std::vector<int32_t> pools;
  std::vector<int32_t> counts;
  for (int32_t row = 0; row < rows; ++row) {
    for (int32_t i = 0; i < top; ++i) pools.push_back(i);
    counts.push_back(static_cast<int32_t>(h.random().integer(0, top)));
  }
  const int64_t width = pool_tokens_width(top, pool, args.tail);
  std::vector<int32_t> positions(static_cast<size_t>(rows * width), 5);
  std::vector<int32_t> token_counts(static_cast<size_t>(rows), 5);
  args.pools = h.upload_ints(pools, {rows, top});
  args.counts = h.upload_ints(counts, {rows});
  args.positions = h.upload_ints(positions, {rows, width});
  args.token_counts = h.upload_ints(token_counts, {rows});
  ops.pool_tokens(h.device(), args);
  const std::vector<int32_t> device_positions = h.fetch_ints(args.positions);
  const std::vector<int32_t> device_counts = h.fetch_ints(args.token_counts);
  args.pools = view_of(pools.data(), {rows, top});
  args.counts = view_of(counts.data(), {rows});
  args.positions = view_of(positions.data(), {rows, width});
  args.token_counts = view_of(token_counts.data(), {rows});
  h.reference().index_pool.pool_tokens(h.host(), args);
  h.check_true(device_positions == positions && device_counts == token_counts);
  h.end_case();
}

}  // namespace

void run_index_cases(Harness& h, int cases) {
  const OpTable exact = h.backend().table(NumericProfile::kExact);
  if (exact.index.scores == nullptr) return;
  h.begin("index layer_norm", "1-40 x 1-600");
  for (int i = 0; i < cases; ++i) layer_norm_case(h, exact.index);
  h.begin("index scores", "bf16, 1-64 heads of 128");
  for (int i = 0; i < cases; ++i) {
    scores_case(h, exact.index, h.random().pick({1, 20, 32, 64}), 128, DType::kBf16);
  }
  h.begin("index scores", "other shapes, F32");
  for (int i = 0; i < cases; ++i) {
    const DType dtype = h.random().pick({DType::kF32, DType::kBf16});
    scores_case(h, exact.index, h.random().integer(1, 5),
                static_cast<int>(h.random().integer(1, 70)), dtype);
  }
  h.begin("index pool_keys", "2-60 rows, cut");
  for (int i = 0; i < cases; ++i) pool_keys_case(h, exact.index_pool);
  h.begin("index pool_tokens", "1-20 rows");
  for (int i = 0; i < cases; ++i) pool_tokens_case(h, exact.index_pool);
  h.begin("index select", "10-40000, ties, NaN");
  for (int i = 0; i < 2 * cases; ++i) select_case(h, exact.index);
}

}  // namespace motley::ops_device
