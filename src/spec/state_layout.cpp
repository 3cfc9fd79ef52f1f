#include "spec/state_layout.h"

namespace motley {
namespace {

void add_kv(const GatedAttentionSpec& mixer, int layer, StateKind kind, DType dtype,
            StateLayout* layout) {
  const int64_t elements = int64_t{2} * mixer.kv_heads * mixer.head_dim;
  layout->entries.push_back({.layer = layer,
                             .kind = kind,
                             .dtype = dtype,
                             .bytes_per_token = elements * dtype_bytes(dtype),
                             .shard_rule = ShardRule::kByToken});
}

// One key for each pool, and the tokens that may still have to be mixed into one.
void add_pooled_index(const IndexerSpec& indexer, int layer, const StateFormat& format,
                      StateLayout* layout) {
  constexpr int64_t kPage = StateLayout::kTokensPerPage;
  const int64_t page_bytes =
      StateLayout::rows_per_page(indexer.pool) * indexer.head_dim * dtype_bytes(format.kv);
  layout->entries.push_back({.layer = layer,
                             .kind = StateKind::kIndexKeys,
                             .dtype = format.kv,
                             .bytes_per_token = (page_bytes + kPage - 1) / kPage});
  constexpr int64_t kSpare = 8;  // kIndexRingSpare of ops/index_pool.h
  const int64_t elements = (indexer.pool + kSpare) * 2 * indexer.head_dim;
  layout->entries.push_back({.layer = layer,
                             .kind = StateKind::kIndexRing,
                             .dtype = format.recurrent,
                             .fixed_bytes = elements * dtype_bytes(format.recurrent)});
}

void add_latents(const LatentAttentionSpec& mixer, int layer, const StateFormat& format,
                 StateLayout* layout) {
  const DType dtype = format.kv;
  const auto add = [&](StateKind kind, int64_t elements, ShardRule rule) {
    layout->entries.push_back({.layer = layer,
                               .kind = kind,
                               .dtype = dtype,
                               .bytes_per_token = elements * dtype_bytes(dtype),
                               .shard_rule = rule});
  };
  add(StateKind::kLatentRows, mixer.cache_width(), ShardRule::kByToken);
  // An indexer ranks all keys of a sequence against each other.
  if (mixer.keys == KeySource::kOwn && mixer.indexer.is_pooled()) {
    add_pooled_index(mixer.indexer, layer, format, layout);
  } else if (mixer.keys == KeySource::kOwn) {
    add(StateKind::kIndexKeys, mixer.indexer.head_dim, ShardRule::kReplicated);
  }
}

void add_delta(const GatedDeltaSpec& mixer, int layer, const StateFormat& format,
               StateLayout* layout) {
  const int64_t element = dtype_bytes(format.recurrent);
  const int64_t key_dim = int64_t{mixer.key_heads} * mixer.key_head_dim;
  const int64_t value_dim = int64_t{mixer.value_heads} * mixer.value_head_dim;
  const auto add = [&](StateKind kind, int64_t elements, ShardRule rule) {
    layout->entries.push_back({.layer = layer,
                               .kind = kind,
                               .dtype = format.recurrent,
                               .fixed_bytes = elements * element,
                               .shard_rule = rule});
  };
  add(StateKind::kConvolutionWindow, (mixer.conv_kernel - 1) * (2 * key_dim + value_dim),
      ShardRule::kByChannelBlocks);
  add(StateKind::kRecurrentMatrix, value_dim * mixer.key_head_dim, ShardRule::kByValueHead);
  if (format.chunked_delta) {
    constexpr int64_t kBlock = 64;  // kDeltaBlock of ops/gated_delta.h
    add(StateKind::kDeltaCarry, kBlock * (key_dim + value_dim + mixer.value_heads),
        ShardRule::kByValueHead);
  }
  if (format.tentative_rows > 0) {
    add(StateKind::kReplayRing, format.tentative_rows * (key_dim + value_dim + mixer.value_heads),
        ShardRule::kByValueHead);
    add(StateKind::kWindowRing, format.tentative_rows * (2 * key_dim + value_dim),
        ShardRule::kByChannelBlocks);
  }
}

void add_channel_delta(const ChannelDeltaSpec& mixer, int layer, const StateFormat& format,
                       StateLayout* layout) {
  const auto add = [&](StateKind kind, int64_t elements, ShardRule rule) {
    layout->entries.push_back({.layer = layer,
                               .kind = kind,
                               .dtype = format.recurrent,
                               .fixed_bytes = elements * dtype_bytes(format.recurrent),
                               .shard_rule = rule});
  };
  add(StateKind::kConvolutionWindow,
      (mixer.conv_kernel - 1) * (2 * mixer.key_dim() + mixer.value_dim()),
      ShardRule::kByChannelBlocks);
  add(StateKind::kRecurrentMatrix, mixer.value_dim() * mixer.key_head_dim, ShardRule::kByValueHead);
  if (format.chunked_delta) {
    constexpr int64_t kBlock = 64;  // kDeltaBlock of ops/gated_delta.h
    add(StateKind::kDeltaCarry, kBlock * (mixer.key_dim() + mixer.value_dim()) + mixer.key_dim(),
        ShardRule::kByValueHead);
  }
  if (format.tentative_rows > 0) {
    add(StateKind::kReplayRing, format.tentative_rows * (2 * mixer.key_dim() + mixer.value_dim()),
        ShardRule::kByValueHead);
    add(StateKind::kWindowRing, format.tentative_rows * (2 * mixer.key_dim() + mixer.value_dim()),
        ShardRule::kByChannelBlocks);
  }
}

void add_layer(const LayerSpec& layer, int index, StateKind kv_kind, const StateFormat& format,
               StateLayout* layout) {
  if (const auto* attention = std::get_if<GatedAttentionSpec>(&layer.mixer)) {
    add_kv(*attention, index, kv_kind, format.kv, layout);
  } else if (const auto* latent = std::get_if<LatentAttentionSpec>(&layer.mixer)) {
    add_latents(*latent, index, format, layout);
  } else if (const auto* channel = std::get_if<ChannelDeltaSpec>(&layer.mixer)) {
    add_channel_delta(*channel, index, format, layout);
  } else {
    add_delta(std::get<GatedDeltaSpec>(layer.mixer), index, format, layout);
  }
}

}  // namespace

std::string_view state_kind_name(StateKind kind) {
  switch (kind) {
    case StateKind::kPagedKv:
      return "kv";
    case StateKind::kConvolutionWindow:
      return "convolution window";
    case StateKind::kRecurrentMatrix:
      return "recurrent matrix";
    case StateKind::kDeltaCarry:
      return "delta carry";
    case StateKind::kDraftKv:
      return "draft kv";
    case StateKind::kLatentRows:
      return "latent rows";
    case StateKind::kIndexKeys:
      return "index keys";
    case StateKind::kIndexRing:
      return "index ring";
    case StateKind::kLastHidden:
      return "last hidden";
    case StateKind::kReplayRing:
      return "replay ring";
    case StateKind::kWindowRing:
      return "window ring";
  }
  return "unknown";
}

std::string_view shard_rule_name(ShardRule rule) {
  switch (rule) {
    case ShardRule::kByToken:
      return "by token";
    case ShardRule::kByValueHead:
      return "by value head";
    case ShardRule::kByChannelBlocks:
      return "by channel blocks";
    case ShardRule::kReplicated:
      return "replicated";
  }
  return "unknown";
}

int64_t StateLayout::bytes_per_token() const {
  int64_t total = 0;
  for (const StateEntry& entry : entries) total += entry.bytes_per_token;
  return total;
}

int64_t StateLayout::fixed_bytes() const {
  int64_t total = 0;
  for (const StateEntry& entry : entries) total += entry.fixed_bytes;
  return total;
}

int64_t StateLayout::bytes_for(int64_t tokens) const {
  const int64_t pages = (tokens + kTokensPerPage - 1) / kTokensPerPage;
  return fixed_bytes() + pages * kTokensPerPage * bytes_per_token();
}

const StateEntry* StateLayout::find(int layer, StateKind kind) const {
  for (const StateEntry& entry : entries) {
    if (entry.layer == layer && entry.kind == kind) return &entry;
  }
  return nullptr;
}

StateLayout make_state_layout(const ModelSpec& spec, const StateFormat& format) {
  StateLayout layout;
  int index = 0;
  for (const LayerSpec& layer : spec.layers) {
    add_layer(layer, index++, StateKind::kPagedKv, format, &layout);
  }
  if (!format.drafts) return layout;
  for (const DraftSpec& draft : spec.drafts) {
    add_layer(draft.layer, index++, StateKind::kDraftKv, format, &layout);
  }
  if (!spec.drafts.empty()) {
    layout.entries.push_back({.layer = static_cast<int>(spec.layers.size()),
                              .kind = StateKind::kLastHidden,
                              .dtype = format.recurrent,
                              .fixed_bytes = spec.hidden_size * dtype_bytes(format.recurrent),
                              .shard_rule = ShardRule::kReplicated});
  }
  return layout;
}

}  // namespace motley
