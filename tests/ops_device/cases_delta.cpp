// The gated delta rule: token by token, in blocks, and from one to the other.
#include <algorithm>
#include <cmath>

#include "ops_device/harness.h"

namespace motley::ops_device {
namespace {

struct DeltaInputs {
  GatedDeltaShape shape;
  Twin qkv;
  Twin beta;
  Twin decay;
  Twin a_log;
  Twin dt_bias;
  std::vector<float> a_log_f32;
  std::vector<float> dt_bias_f32;
};

DeltaInputs random_inputs(Harness& h, int32_t rows, const GatedDeltaShape& shape) {
  DeltaInputs in;
  in.shape = shape;
  in.qkv = h.random_twin({rows, shape.conv_dim()});
  in.beta = h.random_twin({rows, shape.value_heads});
  in.decay = h.random_twin({rows, shape.value_heads});
  in.a_log = h.random_twin({shape.value_heads}, 0.5);
  in.dt_bias = h.random_twin({shape.value_heads});
  in.a_log_f32.assign(in.a_log.values.begin(), in.a_log.values.end());
  in.dt_bias_f32.assign(in.dt_bias.values.begin(), in.dt_bias.values.end());
  return in;
}

GatedDeltaArgs device_args(const DeltaInputs& in, const Twin& out) {
  return {
      in.shape, in.qkv.device, in.beta.device, in.decay.device, in.a_log.device, in.dt_bias.device,
      {},       out.device};
}

GatedDeltaArgs reference_args(const DeltaInputs& in, const Twin& out) {
  const int64_t heads = in.shape.value_heads;
  return {in.shape,
          in.qkv.reference,
          in.beta.reference,
          in.decay.reference,
          view_of(in.a_log_f32.data(), {heads}),
          view_of(in.dt_bias_f32.data(), {heads}),
          {},
          out.reference};
}

GatedDeltaShape random_shape(Harness& h) {
  const int key_heads = static_cast<int>(h.random().integer(1, 3));
  const int dim = h.random().pick({16, 64, 128, 128});
  return {key_heads, key_heads * static_cast<int>(h.random().integer(1, 4)), dim, dim};
}

// The reference's state and output over all rows, token by token.
void run_reference(Harness& h, const DeltaInputs& in, const Twin& out, const Twin& state,
                   int32_t rows) {
  GatedDeltaArgs args = reference_args(in, out);
  const GatedDeltaSegment segment{{RowRole::kDecode, 0, rows, {}}, state.reference, {}};
  args.segments = {&segment, 1};
  h.reference().gated_delta.recurrent(h.host(), args);
}

void recurrent_case(Harness& h, const OpTable& table) {
  const auto rows = static_cast<int32_t>(h.random().integer(1, 20));
  const DeltaInputs in = random_inputs(h, rows, random_shape(h));
  Twin out = h.output_twin({rows, in.shape.value_dim()});
  Twin state =
      h.random_twin({in.shape.value_heads, in.shape.key_head_dim, in.shape.value_head_dim}, 0.3);
  GatedDeltaArgs args = device_args(in, out);
  // Row by row: what decode does must equal what verify rows do.
  for (int32_t row = 0; row < rows; ++row) {
    const GatedDeltaSegment segment{{RowRole::kDecode, row, 1, {row}}, state.device, {}};
    args.segments = {&segment, 1};
    table.gated_delta.recurrent(h.device(), args);
  }
  run_reference(h, in, out, state, rows);
  h.check(out, 1e-5);
  h.check(state, 1e-5);
  h.end_case();
}

// Tentative rows give the outputs of ordinary ones and leave the state alone; taking some of them
// leaves the state that as many ordinary ones would have left. The same bits in all.
void rollback_case(Harness& h, const OpTable& table) {
  const auto rows = static_cast<int32_t>(h.random().integer(1, 9));
  const auto kept = static_cast<int32_t>(h.random().integer(0, rows));
  const DeltaInputs in = random_inputs(h, rows, random_shape(h));
  const GatedDeltaShape& shape = in.shape;
  const Shape state_shape{shape.value_heads, shape.key_head_dim, shape.value_head_dim};
  const Twin out = h.output_twin({rows, shape.value_dim()});
  const Twin tentative = h.output_twin({rows, shape.value_dim()});
  const Twin state = h.random_twin(state_shape, 0.3);
  const std::vector<float> before = h.fetch(state.device);
  const DeltaRing ring{h.output_twin({rows, shape.key_dim()}).device,
                       h.output_twin({rows, shape.value_dim()}).device,
                       h.output_twin({rows, shape.value_heads}).device};
  GatedDeltaSegment segment{{RowRole::kDecode, 0, rows, {}}, state.device, {}, ring};
  GatedDeltaArgs args = device_args(in, tentative);
  args.segments = {&segment, 1};
  table.gated_delta.recurrent(h.device(), args);
  h.check_true(h.fetch(state.device) == before);
  segment.rows.rows = kept;
  table.gated_delta.commit(h.device(), shape, segment);
  const std::vector<float> taken = h.fetch(state.device);
  h.backend().upload(state.device.data, before.data(), before.size() * sizeof(float));
  segment = {{RowRole::kDecode, 0, kept, {}}, state.device, {}, {}};
  args = device_args(in, out);
  args.segments = {&segment, 1};
  table.gated_delta.recurrent(h.device(), args);
  h.check_true(h.fetch(state.device) == taken);
  segment = {{RowRole::kDecode, kept, rows - kept, {kept}}, state.device, {}, {}};
  table.gated_delta.recurrent(h.device(), args);
  h.check_true(h.fetch(out.device) == h.fetch(tentative.device));
  h.end_case();
}

struct Carry {
  int32_t rows = 0;
  Twin keys;
  Twin updates;
  Twin decays;

  DeltaCarry device() { return {&rows, keys.device, updates.device, decays.device}; }
};

Carry make_carry(Harness& h, const GatedDeltaShape& shape) {
  Carry carry;
  carry.keys = h.output_twin({kDeltaBlock, shape.key_dim()});
  carry.updates = h.output_twin({kDeltaBlock, shape.value_dim()});
  carry.decays = h.output_twin({kDeltaBlock, shape.value_heads});
  return carry;
}

// Runs rows [0, start) token by token and the others in chunks that end at `cuts`, flushes, and
// leaves the result in out and state.
void run_chunked(Harness& h, const OpTable& table, const DeltaInputs& in, const Twin& out,
                 const Twin& state, int32_t start, std::vector<int32_t> cuts) {
  Carry carry = make_carry(h, in.shape);
  GatedDeltaArgs args = device_args(in, out);
  const GatedDeltaSegment first{{RowRole::kDecode, 0, start, {}}, state.device, {}};
  args.segments = {&first, 1};
  table.gated_delta.recurrent(h.device(), args);
  int32_t begin = start;
  for (const int32_t end : cuts) {
    const GatedDeltaSegment segment{
        {RowRole::kPrefill, begin, end - begin, {begin}}, state.device, carry.device()};
    args.segments = {&segment, 1};
    table.gated_delta.chunked(h.device(), args);
    begin = end;
  }
  const GatedDeltaSegment last{{}, state.device, carry.device()};
  table.gated_delta.flush_carry(h.device(), in.shape, last);
  h.check_true(carry.rows == 0);
}

void chunked_case(Harness& h, const OpTable& table, double limit) {
  const auto rows = static_cast<int32_t>(h.random().integer(2, 300));
  const DeltaInputs in = random_inputs(h, rows, random_shape(h));
  const Shape out_shape{rows, in.shape.value_dim()};
  const Shape state_shape{in.shape.value_heads, in.shape.key_head_dim, in.shape.value_head_dim};
  Twin out = h.output_twin(out_shape);
  Twin cut_out = h.output_twin(out_shape);
  Twin state = h.random_twin(state_shape, 0.3);
  Twin cut_state = h.output_twin(state_shape);
  const std::vector<float> before = h.fetch(state.device);
  h.backend().upload(cut_state.device.data, before.data(), before.size() * sizeof(float));
  const auto decoded = static_cast<int32_t>(h.random().pick({0, 0, 1, 37}));
  const int32_t start = std::min(decoded, rows - 1);
  run_chunked(h, table, in, out, state, start, {rows});
  std::vector<int32_t> cuts;
  for (int32_t at = start; at < rows;) {
    at = std::min(rows, at + static_cast<int32_t>(h.random().pick({1, 7, 63, 64, 100})));
    cuts.push_back(at);
  }
  run_chunked(h, table, in, cut_out, cut_state, start, cuts);
  h.check_true(h.fetch(out.device) == h.fetch(cut_out.device));
  h.check_true(h.fetch(state.device) == h.fetch(cut_state.device));
  run_reference(h, in, out, state, rows);
  h.check(out, limit);
  h.check(state, limit);
  h.end_case();
}

}  // namespace

void run_delta_cases(Harness& h, int cases) {
  const OpTable exact = h.backend().table(NumericProfile::kExact);
  const OpTable fast = h.backend().table(NumericProfile::kFast);
  h.begin("gated_delta recurrent", "1-20 rows, row by row");
  for (int i = 0; i < cases; ++i) recurrent_case(h, exact);
  h.begin("gated_delta rollback", "1-9 rows");
  for (int i = 0; i < cases; ++i) rollback_case(h, exact);
  // Operands of two bfloat16 pieces lose 2^-17 each, four times on the way to an output.
  h.begin("gated_delta chunked exact", "2-300 rows, cut");
  for (int i = 0; i < cases; ++i) chunked_case(h, exact, 4e-5);
  h.begin("gated_delta chunked fast", "2-300 rows, cut");
  for (int i = 0; i < cases; ++i) chunked_case(h, fast, 2e-2);
}

}  // namespace motley::ops_device
