// The one description of per-sequence state (R2).
//
// Derived once from the model. Allocation, budget, prefix cache, snapshot, wire format, sharding
// and rollback read this table; nothing else knows the shape of state. Layers of drafts follow the
// trunk's: draft d is layer layers.size() + d.
// Ownership: an immutable value.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "numeric/dtype.h"
#include "spec/model_spec.h"

namespace motley {

enum class StateKind : uint8_t {
  kPagedKv,            // keys and values of full attention
  kConvolutionWindow,  // last inputs of the causal convolution
  kRecurrentMatrix,    // linear-attention state
  kDeltaCarry,         // unfinished block of the chunked delta rule
  kDraftKv,            // keys and values of a draft layer
  kLatentRows,         // latents of latent attention, with the rotated part of the keys
  kIndexKeys,          // keys of an indexer, one a token or one a pool of them
  kIndexRing,          // keys and gates of the newest tokens, which make the next pooled key
  kLastHidden,         // post-norm hidden state of the newest token, input of the first draft
  kReplayRing,         // what tentative rows would do to a recurrent matrix (ops/gated_delta.h)
  kWindowRing,         // and to a convolution window: their inputs
};
std::string_view state_kind_name(StateKind kind);

// How a piece divides over ranks.
enum class ShardRule : uint8_t {
  kByToken,          // decode context parallel: blocks of tokens dealt to ranks
  kByValueHead,      // tensor parallel: a contiguous range of value heads
  kByChannelBlocks,  // convolution channels: each of the q, k, v blocks is cut, never their union
  kReplicated,
};
std::string_view shard_rule_name(ShardRule rule);

struct StateEntry {
  int layer = 0;
  StateKind kind = StateKind::kPagedKv;
  DType dtype = DType::kF32;
  int64_t bytes_per_token = 0;  // paged kinds; a page is kTokensPerPage times as much
  int64_t fixed_bytes = 0;      // the others
  ShardRule shard_rule = ShardRule::kReplicated;
};

// Element types of state, a consequence of profile and --cache-format.
struct StateFormat {
  DType kv = DType::kF32;
  DType recurrent = DType::kF32;  // matrix, window, carry and hidden
  bool chunked_delta = false;     // prefill uses the chunked form and needs a carry
  bool drafts = true;             // draft layers run too (speculation, verification)
  int tentative_rows = 0;         // most rows of a step that may be rolled back: drafts + 1
};

struct StateLayout {
  static constexpr int kTokensPerPage = 64;

  // Rows of a page where one row stands for `tokens` tokens.
  static constexpr int rows_per_page(int tokens) { return (kTokensPerPage + tokens - 1) / tokens; }

  std::vector<StateEntry> entries;

  int64_t bytes_per_token() const;
  int64_t fixed_bytes() const;
  // Bytes of a sequence of `tokens` tokens, paged kinds rounded up to whole pages.
  int64_t bytes_for(int64_t tokens) const;
  // nullptr when the layer has no such state.
  const StateEntry* find(int layer, StateKind kind) const;
};

StateLayout make_state_layout(const ModelSpec& spec, const StateFormat& format);

}  // namespace motley
