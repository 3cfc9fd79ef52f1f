// Norm with rotation, cache writes, attention over paged and sharded caches, merges.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "numeric/half.h"
#include "ops_device/harness.h"

namespace motley::ops_device {
namespace {

void norm_rotary_case(Harness& h, const AttentionOps& ops) {
  const auto rows = static_cast<int32_t>(h.random().integer(1, 20));
  const int64_t heads = h.random().integer(1, 8);
  const int64_t dim = h.random().pick({32, 64, 128, 256});
  const int64_t stride = dim * h.random().integer(1, 2);
  Twin x = h.random_twin({rows, heads, stride});
  const Twin weight = h.random_twin({dim});
  const std::vector<float> weight_f32(weight.values.begin(), weight.values.end());
  Twin y = h.output_twin({rows, heads, dim});
  const RowSegment segment{RowRole::kPrefill, 0, rows, {h.random().integer(0, 262000)}};
  HeadNormRotaryArgs args;
  args.x = x.device;
  args.weight = weight.device;
  args.weight_offset = h.random().pick({0.0f, 1.0f});
  args.rotary = {static_cast<int>(dim / h.random().pick({1, 2, 4})), 1e7};
  args.segments = {&segment, 1};
  args.y = y.device;
  ops.head_norm_rotary(h.device(), args);
  args.x = x.reference;
  args.weight = view_of(weight_f32.data(), {dim});
  args.y = y.reference;
  h.reference().attention.head_norm_rotary(h.host(), args);
  h.check(y, 4e-6);
  h.end_case();
}

// A cache of random contents in both worlds; values are rounded to the device's cache format.
struct TwinCache {
  std::vector<std::vector<double>> host_pages;
  std::vector<std::byte*> host;
  std::vector<std::byte*> device;
  PageLayout layout;

  CacheView host_view(const CacheShard& shard) const {
    PageLayout wide = layout;
    wide.dtype = DType::kF64;
    return {host, wide, shard, 0, MemorySpace::kHost};
  }
  CacheView device_view(const CacheShard& shard, MemorySpace space) const {
    return {device, layout, shard, 0, space};
  }
};

double rounded(double value, DType dtype) {
  return dtype == DType::kBf16 ? double{to_float(to_bf16(static_cast<float>(value)))} : value;
}

TwinCache make_cache(Harness& h, const PageLayout& layout, int64_t tokens) {
  TwinCache cache;
  cache.layout = layout;
  const auto elements = static_cast<size_t>(2 * layout.kv_heads * layout.plane_elements());
  const int64_t pages = (tokens + layout.tokens_per_page - 1) / layout.tokens_per_page + 1;
  for (int64_t page = 0; page < pages; ++page) {
    // Memory past the tokens holds NaN on the device: nothing may read it into a result.
    std::vector<float> device(elements, NAN);
    std::vector<double> host(elements, 0.0);
    std::vector<uint16_t> half(elements, 0x7FC0);
    for (int head = 0; head < layout.kv_heads; ++head) {
      for (int slot = 0; slot < layout.tokens_per_page; ++slot) {
        if (page * layout.tokens_per_page + slot >= tokens) continue;
        for (int i = 0; i < layout.head_dim; ++i) {
          for (const int64_t at :
               {layout.key_offset(head, slot) + i, layout.value_offset(head, slot) + i}) {
            const double value = rounded(h.random().normal(), layout.dtype);
            host[static_cast<size_t>(at)] = value;
            device[static_cast<size_t>(at)] = static_cast<float>(value);
            half[static_cast<size_t>(at)] = to_bf16(static_cast<float>(value)).bits;
          }
        }
      }
    }
    std::byte* memory = h.backend().allocate(static_cast<size_t>(layout.page_bytes()));
    const void* source = layout.dtype == DType::kBf16 ? static_cast<void*>(half.data())
                                                      : static_cast<void*>(device.data());
    h.backend().upload(memory, source, static_cast<size_t>(layout.page_bytes()));
    cache.device.push_back(memory);
    cache.host_pages.push_back(std::move(host));
  }
  for (std::vector<double>& page : cache.host_pages) {
    cache.host.push_back(reinterpret_cast<std::byte*>(page.data()));
  }
  return cache;
}

struct AttendShape {
  RowRole role = RowRole::kDecode;
  DType dtype = DType::kF32;
  int head_dim = 256;
  int group = 16;
  double limit = 1e-4;
};

PageLayout random_layout(Harness& h, const AttendShape& shape) {
  return {h.random().pick({16, 64}), static_cast<int>(h.random().integer(1, 3)), shape.head_dim,
          shape.dtype};
}

PartialAttention partial(const TensorView& out, const TensorView& lse) {
  return {out, {lse}};
}

void attend_case(Harness& h, const OpTable& table, const AttendShape& shape) {
  const PageLayout layout = random_layout(h, shape);
  const auto rows = static_cast<int32_t>(
      shape.role == RowRole::kDecode ? h.random().integer(1, 4) : h.random().integer(1, 150));
  const int64_t first = h.random().integer(0, 900);
  const CacheShard shard =
      h.random().pick({CacheShard{}, CacheShard{1, 2, 16}, CacheShard{0, 3, 1}});
  const TwinCache cache = make_cache(h, layout, shard.tokens_below(first + rows));
  const int64_t heads = int64_t{layout.kv_heads} * shape.group;
  Twin q = h.random_twin({rows, heads, shape.head_dim});
  Twin out = h.output_twin({rows, heads, shape.head_dim});
  Twin lse = h.output_twin({rows, heads});
  const RowSegment segment{shape.role, 0, rows, {first}};
  const AttentionSegment on_device{segment, cache.device_view(shard, h.device().space())};
  const AttentionSegment on_host{segment, cache.host_view(shard)};
  AttentionArgs args;
  args.q = q.device;
  args.kv_heads = layout.kv_heads;
  args.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  args.segments = {&on_device, 1};
  args.result = partial(out.device, lse.device);
  table.attention.attend(h.device(), args);
  // The last row alone: the same bits.
  Twin alone = h.output_twin({1, heads, shape.head_dim});
  Twin alone_lse = h.output_twin({1, heads});
  const AttentionSegment last{{shape.role, 0, 1, {first + rows - 1}}, on_device.cache};
  args.q = ConstTensorView(q.device).slice_rows(rows - 1, 1);
  args.segments = {&last, 1};
  args.result = partial(alone.device, alone_lse.device);
  table.attention.attend(h.device(), args);
  args.q = q.reference;
  args.segments = {&on_host, 1};
  args.result = partial(out.reference, lse.reference);
  h.reference().attention.attend(h.host(), args);
  h.check(out, shape.limit);
  h.check(lse, shape.limit);
  h.check_true(h.fetch(alone.device) == h.fetch(out.device.slice_rows(rows - 1, 1)));
  h.end_case();
}

void cache_write_case(Harness& h, const AttentionOps& ops) {
  AttendShape shape;
  shape.dtype = h.random().pick({DType::kF32, DType::kBf16});
  shape.head_dim = h.random().pick({32, 128, 256});
  const PageLayout layout = random_layout(h, shape);
  const auto rows = static_cast<int32_t>(h.random().integer(1, 100));
  const int64_t first = h.random().integer(0, 200);
  const CacheShard shard = h.random().pick({CacheShard{}, CacheShard{1, 2, 16}});
  const TwinCache cache = make_cache(h, layout, shard.tokens_below(first + rows));
  Twin k = h.random_twin({rows, layout.kv_heads, layout.head_dim});
  Twin v = h.random_twin({rows, layout.kv_heads, layout.head_dim});
  const RowSegment segment{RowRole::kPrefill, 0, rows, {first}};
  const AttentionSegment on_device{segment, cache.device_view(shard, h.device().space())};
  const AttentionSegment on_host{segment, cache.host_view(shard)};
  ops.cache_write(h.device(), k.device, v.device, {&on_device, 1});
  h.reference().attention.cache_write(h.host(), k.reference, v.reference, {&on_host, 1});
  h.device().synchronize();
  const auto elements = static_cast<size_t>(2 * layout.kv_heads * layout.plane_elements());
  std::vector<float> wide(elements);
  std::vector<uint16_t> half(elements);
  bool same = true;
  for (size_t page = 0; page < cache.device.size(); ++page) {
    void* target = layout.dtype == DType::kBf16 ? static_cast<void*>(half.data()) : wide.data();
    h.backend().download(target, cache.device[page], static_cast<size_t>(layout.page_bytes()));
    for (size_t i = 0; i < elements; ++i) {
      const double actual =
          layout.dtype == DType::kBf16 ? double{to_float(Bf16{half[i]})} : double{wide[i]};
      const double expected = rounded(cache.host_pages[page][i], layout.dtype);
      same = same && (actual == expected || (std::isnan(actual) && expected == 0.0));
    }
  }
  h.check_true(same);
  h.end_case();
}

void merge_case(Harness& h, const AttentionOps& ops) {
  const int64_t rows = h.random().integer(1, 10);
  const int64_t heads = h.random().integer(1, 32);
  const int64_t dim = h.random().pick({32, 128, 256});
  std::vector<Twin> tensors;
  std::vector<PartialAttention> on_device;
  std::vector<PartialAttention> on_host;
  for (int64_t part = h.random().integer(2, 5); part > 0; --part) {
    tensors.push_back(h.random_twin({rows, heads, dim}));
    tensors.push_back(h.random_twin({rows, heads}, 3.0));
  }
  // A part that saw no key.
  tensors[1].values[0] = -INFINITY;
  std::vector<float> lse(tensors[1].values.begin(), tensors[1].values.end());
  h.backend().upload(tensors[1].device.data, lse.data(), lse.size() * sizeof(float));
  for (size_t i = 0; i < tensors.size(); i += 2) {
    on_device.push_back(partial(tensors[i].device, tensors[i + 1].device));
    on_host.push_back(partial(tensors[i].reference, tensors[i + 1].reference));
  }
  ops.merge(h.device(), on_device, on_device[0]);
  h.reference().attention.merge(h.host(), on_host, on_host[0]);
  h.check(tensors[0], 4e-6);
  h.check(tensors[1], 4e-6);
  h.end_case();
}

}  // namespace

void run_attention_cases(Harness& h, int cases) {
  const OpTable exact = h.backend().table(NumericProfile::kExact);
  const OpTable fast = h.backend().table(NumericProfile::kFast);
  h.begin("head_norm_rotary", "positions to 262k");
  for (int i = 0; i < cases; ++i) norm_rotary_case(h, exact.attention);
  h.begin("cache_write", "F32 and BF16, sharded");
  for (int i = 0; i < cases; ++i) cache_write_case(h, exact.attention);
  h.begin("attention merge", "2-5 parts");
  for (int i = 0; i < cases; ++i) merge_case(h, exact.attention);
  for (const RowRole role : {RowRole::kDecode, RowRole::kPrefill}) {
    const std::string name = role == RowRole::kDecode ? "attend decode " : "attend prefill ";
    h.begin(name + "exact", "F32 cache, dims 64-256");
    for (int i = 0; i < cases; ++i) {
      attend_case(h, exact,
                  {role, DType::kF32, h.random().pick({64, 128, 256}),
                   h.random().pick({1, 4, 8, 16}), 1e-4});
    }
    h.begin(name + "fast", "BF16 cache, dims 64-256");
    for (int i = 0; i < cases; ++i) {
      attend_case(h, fast,
                  {role, DType::kBf16, h.random().pick({64, 128, 256}),
                   h.random().pick({1, 4, 8, 16}), role == RowRole::kDecode ? 1e-4 : 1e-2});
    }
    h.begin(name + "odd", "dims 32-96, groups to 20");
    for (int i = 0; i < cases; ++i) {
      attend_case(h, exact,
                  {role, h.random().pick({DType::kF32, DType::kBf16}),
                   h.random().pick({32, 48, 96}), h.random().pick({3, 20}), 1e-5});
    }
  }
}

}  // namespace motley::ops_device
