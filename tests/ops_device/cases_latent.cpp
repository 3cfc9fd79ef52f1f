// Attention over latent rows, with and without selected keys, sharded; rotation, writes and the
// products of heads.
#include <algorithm>
#include <cmath>

#include "numeric/half.h"
#include "ops_device/row_caches.h"

namespace motley::ops_device {

TwinRowCache random_row_cache(Harness& h, const RowCacheLayout& layout, const CacheShard& shard,
                              int64_t length) {
  TwinRowCache cache;
  cache.layout = layout;
  cache.length = length;
  const int64_t rows = shard.tokens_below(length);
  const auto elements =
      static_cast<size_t>(layout.rows_per_page) * static_cast<size_t>(layout.width);
  const bool half = layout.dtype == DType::kBf16;
  for (int64_t page = 0; page * layout.rows_per_page < rows; ++page) {
    // Memory past the rows holds NaN on the device: nothing may read it into a result.
    std::vector<float> wide(elements, NAN);
    std::vector<uint16_t> narrow(elements, 0x7FC0);
    std::vector<double> host(elements, 0.0);
    for (size_t i = 0; i < elements; ++i) {
      if (page * layout.rows_per_page + static_cast<int64_t>(i) / layout.width >= rows) break;
      const auto value = static_cast<float>(h.random().normal());
      narrow[i] = to_bf16(value).bits;
      wide[i] = value;
      host[i] = half ? double{to_float(to_bf16(value))} : double{value};
    }
    cache.storage.push_back(std::move(host));
    const auto bytes = static_cast<size_t>(layout.page_bytes());
    std::byte* memory = h.backend().allocate(bytes);
    h.backend().upload(memory, half ? static_cast<const void*>(narrow.data()) : wide.data(), bytes);
    cache.device.push_back(memory);
  }
  for (std::vector<double>& page : cache.storage) {
    cache.host.push_back(reinterpret_cast<std::byte*>(page.data()));
  }
  return cache;
}

namespace {

void rotate_case(Harness& h, const LatentOps& ops) {
  const auto rows = static_cast<int32_t>(h.random().integer(1, 20));
  const int64_t heads = h.random().integer(1, 8);
  const int64_t stride = h.random().pick({64, 96, 192});
  Twin x = h.random_twin({rows, heads, stride});
  const RowSegment segment{RowRole::kPrefill, 0, rows, {h.random().integer(0, 262000)}};
  RotateArgs args;
  args.x = x.device;
  args.y = x.device;
  args.rotary = {static_cast<int>(h.random().pick({16, 32, 64})), 1e6};
  args.interleaved = h.random().integer(0, 1) == 1;
  args.segments = {&segment, 1};
  ops.rotate(h.device(), args);
  args.x = x.reference;
  args.y = x.reference;
  h.reference().latent.rotate(h.host(), args);
  h.check(x, 4e-6);
  h.end_case();
}

void head_linear_case(Harness& h, const LatentOps& ops) {
  const int64_t rows = h.random().pick({1, 3, 17, 40, 70});
  const int64_t heads = h.random().integer(1, 4);
  const int64_t outputs = h.random().pick({24, 64, 128, 200});
  const int64_t inputs = 64 * h.random().integer(1, 8);
  const bool transposed = h.random().integer(0, 1) == 1;
  WeightKind kind;
  kind.format =
      h.random().pick({WeightFormat::kMlxAffine, WeightFormat::kBf16, WeightFormat::kF32});
  kind.bits = static_cast<int>(h.random().pick({4, 8}));
  std::vector<TwinWeights> weights;
  std::vector<WeightMatrix> on_device;
  std::vector<WeightMatrix> on_host;
  for (int64_t head = 0; head < heads; ++head) {
    weights.push_back(h.random_weights(kind, outputs, inputs));
  }
  for (const TwinWeights& each : weights) {
    on_device.push_back(each.device);
    on_host.push_back(each.reference);
  }
  const int64_t from = transposed ? outputs : inputs;
  const int64_t to = transposed ? inputs : outputs;
  Twin x = h.random_twin({rows, heads, from + 8});
  Twin y = h.random_twin({rows, heads, to + 16});
  ops.head_linear(h.device(), x.device, on_device, transposed, y.device);
  h.reference().latent.head_linear(h.host(), x.reference, on_host, transposed, y.reference);
  h.check(y, 2e-5);
  // A row alone has the same bits.
  Twin alone = h.random_twin({1, heads, to + 16});
  ops.head_linear(h.device(), x.device.slice_rows(rows - 1, 1), on_device, transposed,
                  alone.device);
  const std::vector<float> a = h.fetch(alone.device);
  const std::vector<float> b = h.fetch(y.device.slice_rows(rows - 1, 1));
  h.check_true(std::equal(a.begin(), a.begin() + to, b.begin()));
  h.end_case();
}

// Which keys the rows may see.
struct Choice {
  std::vector<int32_t> positions;
  std::vector<int32_t> counts;
  KeySelection device;
  KeySelection host;
};

Choice random_choice(Harness& h, int32_t rows, int64_t first_position, int64_t width) {
  Choice choice;
  choice.positions.assign(static_cast<size_t>(rows * width), 0);
  for (int32_t row = 0; row < rows; ++row) {
    const int64_t keys = first_position + row + 1;
    const auto most = static_cast<int32_t>(std::min(keys, width));
    const auto wanted = static_cast<int32_t>(h.random().pick({most, most / 2, most, 0}));
    int32_t* at = choice.positions.data() + row * width;
    int32_t count = 0;
    for (int64_t key = 0; key < keys && count < wanted; ++key) {
      // Enough of the others must be left for the rest of the count.
      const bool last = keys - key == wanted - count;
      if (last || h.random().integer(0, keys - 1) < wanted) at[count++] = static_cast<int32_t>(key);
    }
    choice.counts.push_back(h.random().integer(0, 5) == 0 ? kEveryKey : count);
  }
  const Shape shape{rows, width};
  choice.device = {h.upload_ints(choice.positions, shape), h.upload_ints(choice.counts, {rows})};
  choice.host = {view_of(choice.positions.data(), shape), view_of(choice.counts.data(), {rows})};
  return choice;
}

struct LatentShape {
  int64_t heads;
  int rank;
  int rope;
  DType dtype;
};

void attend_case(Harness& h, const LatentOps& ops, const LatentShape& shape, RowRole role,
                 double limit) {
  const auto rows = static_cast<int32_t>(h.random().integer(1, 5));
  const int64_t tokens = h.random().pick({5, 70, 300, 900}) + rows;
  const int width = shape.rank + shape.rope;
  const int rows_per_page = static_cast<int>(h.random().pick({64, 16}));
  const int shards = static_cast<int>(h.random().pick({1, 1, 2}));
  const CacheShard shard{static_cast<int>(h.random().integer(0, shards - 1)), shards, 4};
  const RowCacheLayout layout{rows_per_page, width, shape.dtype};
  const TwinRowCache cache = random_row_cache(h, layout, shard, tokens);
  Twin q = h.random_twin({rows, shape.heads, width});
  Twin out = h.output_twin({rows, shape.heads, shape.rank});
  Twin lse = h.output_twin({rows, shape.heads});
  const RowSegment segment{role, 0, rows, {tokens - rows}};
  const RowCacheSegment on_device{segment, cache.device_view(shard, h.device().space())};
  const RowCacheSegment on_host{segment, cache.host_view(shard)};
  const Choice choice = random_choice(h, rows, tokens - rows, h.random().pick({64, 300, 600}));
  const bool selected = h.random().integer(0, 2) > 0;
  LatentAttentionArgs args;
  args.q = q.device;
  args.rank = shape.rank;
  args.scale = 1.0f / std::sqrt(static_cast<float>(width));
  args.segments = {&on_device, 1};
  if (selected) args.selection = choice.device;
  args.result = {out.device, {lse.device}};
  ops.attend(h.device(), args);
  LatentAttentionArgs reference = args;
  reference.q = q.reference;
  reference.segments = {&on_host, 1};
  reference.selection = selected ? choice.host : KeySelection{};
  reference.result = {out.reference, {lse.reference}};
  h.reference().latent.attend(h.host(), reference);
  h.check(out, limit, 1.0);
  h.check(lse, limit, 1.0);
  // The last row alone has the same bits.
  Twin alone = h.output_twin({1, shape.heads, shape.rank});
  Twin alone_lse = h.output_twin({1, shape.heads});
  const RowCacheSegment last{{role, 0, 1, {tokens - 1}}, on_device.cache};
  args.q = q.device.slice_rows(rows - 1, 1);
  args.segments = {&last, 1};
  if (selected) args.selection = choice.device.slice_rows(rows - 1, 1);
  args.result = {alone.device, {alone_lse.device}};
  ops.attend(h.device(), args);
  h.check_true(h.fetch(alone.device) == h.fetch(out.device.slice_rows(rows - 1, 1)));
  h.end_case();
}

void row_write_case(Harness& h, const LatentOps& ops) {
  const auto rows = static_cast<int32_t>(h.random().integer(1, 30));
  const int width = static_cast<int>(h.random().integer(1, 100));
  const DType dtype = h.random().pick({DType::kBf16, DType::kF32});
  const int64_t first = h.random().integer(0, 50);
  const RowCacheLayout layout{static_cast<int>(h.random().pick({8, 64})), width, dtype};
  const CacheShard shard{1, 2, 2};
  const TwinRowCache cache = random_row_cache(h, layout, shard, first + rows);
  const Twin x = h.random_twin({rows, width});
  const RowCacheSegment segment{{RowRole::kPrefill, 0, rows, {first}},
                                cache.device_view(shard, h.device().space())};
  ops.row_write(h.device(), x.device, {&segment, 1});
  h.device().synchronize();
  for (int32_t row = 0; row < rows; ++row) {
    if (!shard.holds(first + row)) continue;
    std::vector<std::byte> bytes(static_cast<size_t>(layout.row_bytes()));
    h.backend().download(bytes.data(), segment.cache.row(shard.tokens_below(first + row)),
                         bytes.size());
    for (int i = 0; i < width; ++i) {
      const auto value = static_cast<float>(x.values[static_cast<size_t>(row * width + i)]);
      const bool same =
          dtype == DType::kBf16
              ? reinterpret_cast<const uint16_t*>(bytes.data())[i] == to_bf16(value).bits
              : reinterpret_cast<const float*>(bytes.data())[i] == value;
      h.check_true(same);
    }
  }
  h.end_case();
}

}  // namespace

void run_latent_cases(Harness& h, int cases) {
  const OpTable exact = h.backend().table(NumericProfile::kExact);
  const OpTable fast = h.backend().table(NumericProfile::kFast);
  if (exact.latent.attend == nullptr) return;
  h.begin("latent rotate", "1-20 rows, 1-8 heads");
  for (int i = 0; i < cases; ++i) rotate_case(h, exact.latent);
  h.begin("latent row_write", "1-30 rows, sharded");
  for (int i = 0; i < cases; ++i) row_write_case(h, exact.latent);
  h.begin("latent head_linear", "1-70 rows, 1-4 heads");
  for (int i = 0; i < 2 * cases; ++i) head_linear_case(h, exact.latent);
  for (const RowRole role : {RowRole::kDecode, RowRole::kPrefill}) {
    const std::string name = role == RowRole::kDecode ? "latent decode " : "latent prefill ";
    h.begin(name + "exact", "F32 cache");
    for (int i = 0; i < cases; ++i) {
      attend_case(h, exact.latent, {h.random().integer(1, 5), 48, 20, DType::kF32}, role, 2e-5);
    }
    h.begin(name + "fast", "bf16 cache, rank 512");
    for (int i = 0; i < cases; ++i) {
      const int rope = static_cast<int>(h.random().pick({64, 0}));
      const int64_t heads = h.random().pick({4, 32, 33, 64});
      attend_case(h, fast.latent, {heads, 512, rope, DType::kBf16}, role, 2e-2);
    }
    h.begin(name + "fast", "bf16 cache, odd shapes");
    for (int i = 0; i < cases; ++i) {
      attend_case(h, fast.latent,
                  {h.random().integer(1, 20), h.random().pick({32, 80, 100}), 16, DType::kBf16},
                  role, 2e-2);
    }
  }
}

}  // namespace motley::ops_device
