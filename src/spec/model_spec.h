// What a model is, as data: every layer, its dimensions, and which tensors of the checkpoint make
// each weight. A family file (spec/families/) turns config.json into one of these and does nothing
// else; everything downstream reads only this.
// Ownership: an immutable value after building. Thread rule: share by const reference.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tensor/shape.h"

namespace motley {

// Index into ModelSpec::tensors.
struct TensorHandle {
  int32_t index = -1;
  bool is_set() const { return index >= 0; }
  friend bool operator==(TensorHandle, TensorHandle) = default;
};

enum class TensorRole : uint8_t {
  kMatrix,       // [out, in], any weight format
  kVector,       // [n], used as float32; on disk other dimensions may be 1
  kTable,        // [rows, cols], used as float32 and never quantised
  kConvolution,  // [channels, kernel], used as float32; on disk [C, 1, k] or [C, k, 1]
  kExperts,      // [experts, out, in]: a stack of matrices, any weight format
};

// Rows [row_begin, row_begin + row_count) of one module of the checkpoint. A module is a base name
// to which ".weight" (and ".scales", ".biases") is added, unless `bare`: then the name itself is
// the tensor. For kExperts, "{}" in the name stands for the expert id (one module per expert);
// without it the module is stacked with the experts as leading dimension. kExperts has one piece.
struct TensorPiece {
  std::string module;
  bool bare = false;
  int64_t row_begin = 0;
  int64_t row_count = 0;
};

struct TensorSpec {
  std::string name;  // canonical, for reports: "layers.3.attention.q_proj"
  TensorRole role = TensorRole::kMatrix;
  Shape shape;
  // The rows of this tensor, in order. One piece covering a whole module is used in place.
  std::vector<TensorPiece> pieces;
  // Part of the model for the ledger: "embedding", "attention", "delta", "router", "experts",
  // "shared expert", "dense mlp", "norm", "head", "draft".
  std::string part;
};

// The reason of a SkippedTensor that is a copy of the embedding under a tied head's name.
inline constexpr std::string_view kTiedReason = "tied to the embedding";

// A tensor of the checkpoint that is left out on purpose.
struct SkippedTensor {
  std::string prefix;  // matches names that begin with it
  std::string reason;
};

struct NormSpec {
  TensorHandle weight;
  float epsilon = 1e-6f;
  float weight_offset = 0.0f;  // 1 for zero-centred weights as stored
};

struct GatedDeltaSpec {
  int key_heads = 0;
  int value_heads = 0;
  int key_head_dim = 0;
  int value_head_dim = 0;
  int conv_kernel = 0;
  TensorHandle in_proj_qkv;  // [2 * key_dim + value_dim, hidden]
  TensorHandle in_proj_z;    // [value_dim, hidden]
  TensorHandle in_proj_b;    // [value_heads, hidden]
  TensorHandle in_proj_a;    // [value_heads, hidden]
  TensorHandle convolution;  // [2 * key_dim + value_dim, conv_kernel]
  TensorHandle a_log;        // [value_heads]
  TensorHandle dt_bias;      // [value_heads]
  NormSpec norm;             // [value_head_dim], gated, plain weight
  TensorHandle out_proj;     // [hidden, value_dim]
};

// Delta rule with a decay per key channel (Kimi delta attention). Key and value heads are one to
// one. The gates of decay and output have a low-rank projection each.
struct ChannelDeltaSpec {
  int heads = 0;
  int key_head_dim = 0;
  int value_head_dim = 0;
  int conv_kernel = 0;
  bool bounded = true;         // else the decay is a softplus without bound
  float lower_bound = -5.0f;   // of the logarithm of the decay, when bounded
  TensorHandle q_proj;         // [heads * key_head_dim, hidden]
  TensorHandle k_proj;         // [heads * key_head_dim, hidden]
  TensorHandle v_proj;         // [heads * value_head_dim, hidden]
  TensorHandle convolution;    // [2 * key_dim + value_dim, conv_kernel]: q | k | v
  TensorHandle decay_in_proj;  // [rank, hidden]
  TensorHandle decay_proj;     // [heads * key_head_dim, rank]
  TensorHandle a_log;          // [heads]
  TensorHandle dt_bias;        // [heads * key_head_dim]
  TensorHandle beta_proj;      // [heads, hidden]
  TensorHandle gate_in_proj;   // [rank, hidden]
  TensorHandle gate_proj;      // [heads * value_head_dim, rank]: sigmoid gate of the output
  NormSpec norm;               // [value_head_dim], before the gate
  TensorHandle out_proj;       // [hidden, heads * value_head_dim]

  int64_t key_dim() const { return int64_t{heads} * key_head_dim; }
  int64_t value_dim() const { return int64_t{heads} * value_head_dim; }
};

struct GatedAttentionSpec {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;
  double rope_theta = 10000.0;
  TensorHandle q_proj;  // [heads * 2 * head_dim, hidden]: per head, query rows then gate rows
  TensorHandle k_proj;  // [kv_heads * head_dim, hidden]
  TensorHandle v_proj;
  TensorHandle o_proj;  // [hidden, heads * head_dim]
  NormSpec q_norm;      // [head_dim]
  NormSpec k_norm;
};

// Chooses the keys of a latent attention (ops/index.h).
struct IndexerSpec {
  int heads = 0;
  int head_dim = 0;
  int top_k = 0;
  int rotary_dim = 0;  // leading dims of queries and keys; 0: no rotation
  double rope_theta = 10000.0;
  bool interleaved = false;  // pairs of the rotation
  float weight_scale = 1.0f;
  TensorHandle q_proj;         // [heads * head_dim, q_rank]
  TensorHandle k_proj;         // [head_dim, hidden]
  TensorHandle weights_proj;   // [heads, hidden]
  TensorHandle k_norm_weight;  // [head_dim]: a layer norm
  TensorHandle k_norm_bias;
  float k_norm_epsilon = 1e-6f;

  // Scores whole pools of `pool` tokens, by one mixed key each (ops/index_pool.h), when pool > 0;
  // top_k, a multiple of it, still counts tokens.
  int pool = 0;
  bool pool_tail = true;     // tokens of the open pool are seen too, whatever was chosen
  TensorHandle pool_gate;    // [head_dim, hidden]
  TensorHandle pool_offset;  // [pool, head_dim]: added to the gates of a pool's tokens

  bool is_pooled() const { return pool > 0; }
  // Most keys that one row may see.
  int width() const { return top_k + (is_pooled() && pool_tail ? pool - 1 : 0); }
};

enum class KeySource : uint8_t {
  kEvery,   // causal attention over all keys
  kOwn,     // this layer's indexer chooses
  kShared,  // the choice of the nearest layer before this one that has an indexer
};

// Attention over one latent vector per token (ops/latent_attention.h). A query head is
// [nope_dim | rope_dim], a cache row [kv_rank | rope_dim].
struct LatentAttentionSpec {
  int heads = 0;
  int q_rank = 0;
  int kv_rank = 0;
  int nope_dim = 0;
  int rope_dim = 0;  // 0: no rotation
  int value_dim = 0;
  double rope_theta = 10000.0;
  bool interleaved = false;  // pairs of the rotation
  float scale = 1.0f;
  TensorHandle q_a_proj;   // [q_rank, hidden]
  TensorHandle q_a_bias;   // [q_rank]; may be unset, as the other biases
  NormSpec q_a_norm;       // [q_rank]
  TensorHandle q_b_proj;   // [heads * (nope_dim + rope_dim), q_rank]
  TensorHandle kv_a_proj;  // [kv_rank + rope_dim, hidden]
  TensorHandle kv_a_bias;  // [kv_rank + rope_dim]
  NormSpec kv_a_norm;      // [kv_rank]: of the latent part
  // The up-projection, per head nope_dim rows of keys, then value_dim rows of values:
  // [heads * (nope_dim + value_dim), kv_rank].
  TensorHandle kv_b_proj;
  TensorHandle o_proj;  // [hidden, heads * value_dim]
  TensorHandle o_bias;  // [hidden]
  KeySource keys = KeySource::kEvery;
  IndexerSpec indexer;  // kOwn only

  int cache_width() const { return kv_rank + rope_dim; }
};

// Gate and up of a feed-forward without bounds (SwigluParams of ops/swiglu.h).
inline constexpr float kNoActivationLimit = std::numeric_limits<float>::infinity();

enum class RouterKind : uint8_t { kSoftmax, kSigmoid };

struct MoeSpec {
  RouterKind router_kind = RouterKind::kSoftmax;
  int experts = 0;
  int experts_per_token = 0;
  int intermediate_size = 0;
  int shared_intermediate_size = 0;
  bool normalise = true;
  int groups = 1;  // kSigmoid only, as the three below (SigmoidRoutingParams of ops/moe.h)
  int kept_groups = 1;
  float routed_scale = 1.0f;
  TensorHandle correction_bias;             // [experts]
  float swiglu_limit = kNoActivationLimit;  // of gate and up, routed and shared experts
  TensorHandle router;                      // [experts, hidden]
  TensorHandle gate;                        // kExperts [experts, intermediate, hidden]
  TensorHandle up;                          // kExperts
  TensorHandle down;                        // kExperts [experts, hidden, intermediate]
  TensorHandle shared_gate;                 // matrices of the shared expert
  TensorHandle shared_up;
  TensorHandle shared_down;
  TensorHandle shared_expert_gate;  // [1, hidden]: sigmoid gate of the shared expert, or unset
};

struct DenseMlpSpec {
  int intermediate_size = 0;
  float swiglu_limit = kNoActivationLimit;
  TensorHandle gate;
  TensorHandle up;
  TensorHandle down;
};

using MixerSpec =
    std::variant<GatedDeltaSpec, GatedAttentionSpec, ChannelDeltaSpec, LatentAttentionSpec>;
// "gated delta", "gated attention", ... for reports.
inline std::string_view mixer_name(const MixerSpec& mixer) {
  if (std::holds_alternative<GatedDeltaSpec>(mixer)) return "gated delta";
  if (std::holds_alternative<ChannelDeltaSpec>(mixer)) return "Kimi delta";
  if (std::holds_alternative<LatentAttentionSpec>(mixer)) return "latent attention";
  return "gated attention";
}

using FeedForwardSpec = std::variant<MoeSpec, DenseMlpSpec>;

enum class ResidualKind : uint8_t {
  kPlain,    // h <- h + f(norm(h))
  kStreams,  // hyper-connection: f reads a mix of the streams and is written to all of them
};

// The residual streams of the trunk, the same in every layer. One stream is a plain residual.
struct ResidualSpec {
  int streams = 1;
  int sinkhorn_iterations = 20;
  float norm_epsilon = 1e-6f;
  float epsilon = 1e-6f;
  float post_scale = 2.0f;
};

// Coefficients of one mixer's or feed-forward's hyper-connection, n streams
// (ops/hyper_connection.h).
struct HyperConnectionSpec {
  TensorHandle fn;     // [n (2 + n), n * hidden]
  TensorHandle base;   // [n (2 + n)]
  TensorHandle scale;  // [3]
};

struct LayerSpec {
  ResidualKind residual = ResidualKind::kPlain;
  NormSpec mixer_norm;
  MixerSpec mixer;
  NormSpec feed_forward_norm;
  FeedForwardSpec feed_forward;
  HyperConnectionSpec mixer_hyper;  // kStreams only
  HyperConnectionSpec feed_forward_hyper;
};

// One multi-token-prediction layer: logits of token i + 2 from (hidden_i, token_{i+1}).
struct DraftSpec {
  TensorHandle projection;  // [hidden, 2 * hidden]: embedding half first
  NormSpec embedding_norm;
  NormSpec hidden_norm;
  LayerSpec layer;
  NormSpec final_norm;
  TensorHandle embedding;             // of its own, or unset: the trunk's
  TensorHandle head;                  // the same
  bool zero_first_embedding = false;  // the embedding is 0 at position 0
};

struct ModelSpec {
  std::string family;  // the model_type of config.json
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t context_length = 0;  // max_position_embeddings
  ResidualSpec residual;
  std::vector<LayerSpec> layers;
  TensorHandle embedding;  // [vocab, hidden]
  NormSpec final_norm;
  TensorHandle head;  // [vocab, hidden]; equal to `embedding` when tied
  std::vector<DraftSpec> drafts;
  std::vector<int32_t> eos_tokens;  // union of config.json and generation_config.json
  std::vector<TensorSpec> tensors;
  std::vector<SkippedTensor> skipped;

  const TensorSpec& tensor(TensorHandle handle) const {
    return tensors[static_cast<size_t>(handle.index)];
  }
};

}  // namespace motley
