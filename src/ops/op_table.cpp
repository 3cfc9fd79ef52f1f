#include "ops/op_table.h"

namespace motley {
namespace {

void note_missing(bool present, std::string_view name, std::string* missing) {
  if (present) return;
  if (!missing->empty()) *missing += ", ";
  *missing += name;
}

}  // namespace

std::string_view numeric_profile_name(NumericProfile profile) {
  return profile == NumericProfile::kExact ? "exact" : "fast";
}

Status check_complete(const OpTable& table, const OpNeeds& needs) {
  std::string missing;
  note_missing(table.linear.linear, "linear", &missing);
  note_missing(table.linear.embed, "embed", &missing);
  note_missing(table.norm.rms_norm, "rms_norm", &missing);
  note_missing(table.norm.gated_rms_norm, "gated_rms_norm", &missing);
  note_missing(table.norm.add, "add", &missing);
  note_missing(table.norm.silu_multiply, "silu_multiply", &missing);
  note_missing(table.norm.sigmoid_multiply, "sigmoid_multiply", &missing);
  note_missing(table.convolution.causal_convolution, "causal_convolution", &missing);
  note_missing(table.gated_delta.recurrent, "gated_delta.recurrent", &missing);
  note_missing(table.gated_delta.chunked, "gated_delta.chunked", &missing);
  note_missing(table.gated_delta.flush_carry, "gated_delta.flush_carry", &missing);
  if (needs.channel_delta) {
    note_missing(table.channel_delta.recurrent, "channel_delta.recurrent", &missing);
    note_missing(table.channel_delta.chunked, "channel_delta.chunked", &missing);
    note_missing(table.channel_delta.flush_carry, "channel_delta.flush_carry", &missing);
  }
  if (needs.rollback) {
    note_missing(table.convolution.commit, "convolution.commit", &missing);
    note_missing(table.gated_delta.commit, "gated_delta.commit", &missing);
    if (needs.channel_delta) {
      note_missing(table.channel_delta.commit, "channel_delta.commit", &missing);
    }
  }
  if (needs.hyper) {
    note_missing(table.hyper.mix, "hyper.mix", &missing);
    note_missing(table.hyper.merge, "hyper.merge", &missing);
    note_missing(table.hyper.spread, "hyper.spread", &missing);
    note_missing(table.hyper.mean, "hyper.mean", &missing);
  }
  if (needs.index_pool) {
    note_missing(table.index_pool.pool_keys, "pool_keys", &missing);
    note_missing(table.index_pool.pool_tokens, "pool_tokens", &missing);
  }
  if (needs.swiglu_limit) note_missing(table.swiglu_limit, "swiglu_limit", &missing);
  if (needs.latent) {
    note_missing(table.latent.rotate, "latent.rotate", &missing);
    note_missing(table.latent.row_write, "latent.row_write", &missing);
    note_missing(table.latent.head_linear, "latent.head_linear", &missing);
    note_missing(table.latent.attend, "latent.attend", &missing);
    note_missing(table.norm.add_bias, "add_bias", &missing);
    note_missing(table.norm.zero_rows, "zero_rows", &missing);
  }
  if (needs.index) {
    note_missing(table.index.layer_norm, "index.layer_norm", &missing);
    note_missing(table.index.scores, "index.scores", &missing);
    note_missing(table.index.select, "index.select", &missing);
  }
  if (needs.sigmoid_routing) note_missing(table.moe.route_sigmoid, "route_sigmoid", &missing);
  note_missing(table.attention.head_norm_rotary, "head_norm_rotary", &missing);
  note_missing(table.attention.cache_write, "cache_write", &missing);
  note_missing(table.attention.attend, "attend", &missing);
  note_missing(table.attention.merge, "attention.merge", &missing);
  note_missing(table.moe.route_softmax, "route_softmax", &missing);
  note_missing(table.moe.experts, "experts", &missing);
  note_missing(table.moe.combine, "combine", &missing);
  if (missing.empty()) return Status::ok();
  return unsupported("backend " + table.name + " lacks the ops " + missing);
}

}  // namespace motley
