// The delta rule with a decay per key channel: token by token, in blocks, and from one to the
// other.
#include <algorithm>
#include <utility>

#include "ops_device/harness.h"

namespace motley::ops_device {
namespace {

struct Inputs {
  ChannelDeltaArgs device;
  ChannelDeltaArgs reference;
  std::vector<float> a_log;
  std::vector<float> dt_bias;
  std::vector<Twin> storage;
};

ChannelDeltaShape random_shape(Harness& h) {
  const int dim = h.random().pick({16, 64, 128, 128, 100});
  const int value_dim = h.random().pick({dim, dim, 128, 36});
  return {static_cast<int>(h.random().integer(1, 4)), dim, value_dim};
}

Inputs random_inputs(Harness& h, int64_t rows, const ChannelDeltaShape& shape) {
  Inputs in;
  for (const Shape& each :
       {Shape{rows, shape.conv_dim()}, Shape{rows, shape.heads}, Shape{rows, shape.key_dim()},
        Shape{shape.heads}, Shape{shape.key_dim()}}) {
    in.storage.push_back(h.random_twin(each, each.rank() == 1 ? 0.5 : 1.0));
  }
  const std::vector<Twin>& s = in.storage;
  in.a_log.assign(s[3].values.begin(), s[3].values.end());
  in.dt_bias.assign(s[4].values.begin(), s[4].values.end());
  const DecayGate gate = h.random().pick({DecayGate::kBounded, DecayGate::kSoftplus});
  const float bound = h.random().pick({-5.0f, -0.5f});
  in.device = {shape,       gate,        bound,       s[0].device, s[1].device,
               s[2].device, s[3].device, s[4].device, {},          {}};
  in.reference = {shape,
                  gate,
                  bound,
                  s[0].reference,
                  s[1].reference,
                  s[2].reference,
                  view_of(std::as_const(in.a_log).data(), s[3].shape),
                  view_of(std::as_const(in.dt_bias).data(), s[4].shape),
                  {},
                  {}};
  return in;
}

void run_reference(Harness& h, Inputs& in, const Twin& out, const Twin& state, int32_t rows) {
  const ChannelDeltaSegment segment{{RowRole::kDecode, 0, rows, {}}, state.reference, {}};
  in.reference.segments = {&segment, 1};
  in.reference.out = out.reference;
  h.reference().channel_delta.recurrent(h.host(), in.reference);
}

void recurrent_case(Harness& h, const OpTable& table) {
  const auto rows = static_cast<int32_t>(h.random().integer(1, 20));
  const ChannelDeltaShape shape = random_shape(h);
  Inputs in = random_inputs(h, rows, shape);
  Twin out = h.output_twin({rows, shape.value_dim()});
  Twin state = h.random_twin({shape.heads, shape.key_head_dim, shape.value_head_dim}, 0.3);
  in.device.out = out.device;
  // Row by row: what decode does must equal what verify rows do.
  for (int32_t row = 0; row < rows; ++row) {
    const ChannelDeltaSegment segment{{RowRole::kDecode, row, 1, {row}}, state.device, {}};
    in.device.segments = {&segment, 1};
    table.channel_delta.recurrent(h.device(), in.device);
  }
  run_reference(h, in, out, state, rows);
  h.check(out, 1e-5);
  h.check(state, 1e-5);
  h.end_case();
}

// As for the other delta rule (cases_delta.cpp).
void rollback_case(Harness& h, const OpTable& table) {
  const auto rows = static_cast<int32_t>(h.random().integer(1, 9));
  const auto kept = static_cast<int32_t>(h.random().integer(0, rows));
  const ChannelDeltaShape shape = random_shape(h);
  Inputs in = random_inputs(h, rows, shape);
  const Twin out = h.output_twin({rows, shape.value_dim()});
  const Twin tentative = h.output_twin({rows, shape.value_dim()});
  const Twin state = h.random_twin({shape.heads, shape.key_head_dim, shape.value_head_dim}, 0.3);
  const std::vector<float> before = h.fetch(state.device);
  const DeltaRing ring{h.output_twin({rows, shape.key_dim()}).device,
                       h.output_twin({rows, shape.value_dim()}).device,
                       h.output_twin({rows, shape.key_dim()}).device};
  ChannelDeltaSegment segment{{RowRole::kDecode, 0, rows, {}}, state.device, {}, ring};
  in.device.segments = {&segment, 1};
  in.device.out = tentative.device;
  table.channel_delta.recurrent(h.device(), in.device);
  h.check_true(h.fetch(state.device) == before);
  segment.rows.rows = kept;
  table.channel_delta.commit(h.device(), shape, segment);
  const std::vector<float> taken = h.fetch(state.device);
  h.backend().upload(state.device.data, before.data(), before.size() * sizeof(float));
  in.device.out = out.device;
  segment = {{RowRole::kDecode, 0, kept, {}}, state.device, {}, {}};
  table.channel_delta.recurrent(h.device(), in.device);
  h.check_true(h.fetch(state.device) == taken);
  segment = {{RowRole::kDecode, kept, rows - kept, {kept}}, state.device, {}, {}};
  table.channel_delta.recurrent(h.device(), in.device);
  h.check_true(h.fetch(out.device) == h.fetch(tentative.device));
  h.end_case();
}

// Rows [0, cuts[0]) token by token, then chunks that end at the other cuts, then the carry.
void run_chunked(Harness& h, const OpTable& table, Inputs& in, const Twin& out, const Twin& state,
                 const std::vector<int32_t>& cuts) {
  const ChannelDeltaShape& shape = in.device.shape;
  int32_t held = 0;
  const ChannelDeltaCarry carry{&held, h.output_twin({kDeltaBlock, shape.key_dim()}).device,
                                h.output_twin({kDeltaBlock, shape.value_dim()}).device,
                                h.output_twin({1, shape.key_dim()}).device};
  in.device.out = out.device;
  int32_t begin = 0;
  for (size_t i = 0; i < cuts.size(); ++i) {
    const RowSegment rows{
        i == 0 ? RowRole::kDecode : RowRole::kPrefill, begin, cuts[i] - begin, {begin}};
    const ChannelDeltaSegment segment{rows, state.device, carry};
    in.device.segments = {&segment, 1};
    const auto op = i == 0 ? table.channel_delta.recurrent : table.channel_delta.chunked;
    if (rows.rows > 0) op(h.device(), in.device);
    begin = cuts[i];
  }
  table.channel_delta.flush_carry(h.device(), shape, {{}, state.device, carry});
  h.check_true(held == 0);
}

void chunked_case(Harness& h, const OpTable& table, double limit) {
  const auto rows = static_cast<int32_t>(h.random().integer(2, 300));
  const auto decoded = static_cast<int32_t>(h.random().pick({0, 0, 1, 37}));
  const int32_t start = std::min(decoded, rows - 1);
  const ChannelDeltaShape shape = random_shape(h);
  Inputs in = random_inputs(h, rows, shape);
  const Shape state_shape{shape.heads, shape.key_head_dim, shape.value_head_dim};
  Twin out = h.output_twin({rows, shape.value_dim()});
  Twin cut_out = h.output_twin({rows, shape.value_dim()});
  Twin state = h.random_twin(state_shape, 0.3);
  Twin cut_state = h.output_twin(state_shape);
  const std::vector<float> before = h.fetch(state.device);
  h.backend().upload(cut_state.device.data, before.data(), before.size() * sizeof(float));
  run_chunked(h, table, in, out, state, {start, rows});
  std::vector<int32_t> cuts{start};
  while (cuts.back() < rows) {
    cuts.push_back(
        std::min(rows, cuts.back() + static_cast<int32_t>(h.random().pick({1, 7, 63, 64, 100}))));
  }
  run_chunked(h, table, in, cut_out, cut_state, cuts);
  h.check_true(h.fetch(out.device) == h.fetch(cut_out.device));
  h.check_true(h.fetch(state.device) == h.fetch(cut_state.device));
  run_reference(h, in, out, state, rows);
  h.check(out, limit);
  h.check(state, limit);
  h.end_case();
}

}  // namespace

void run_channel_cases(Harness& h, int cases) {
  const OpTable exact = h.backend().table(NumericProfile::kExact);
  const OpTable fast = h.backend().table(NumericProfile::kFast);
  h.begin("channel_delta recurrent", "1-20 rows, row by row");
  for (int i = 0; i < cases; ++i) recurrent_case(h, exact);
  h.begin("channel_delta rollback", "1-9 rows");
  for (int i = 0; i < cases; ++i) rollback_case(h, exact);
  h.begin("channel_delta chunked exact", "2-300 rows, cut");
  for (int i = 0; i < cases; ++i) chunked_case(h, exact, 4e-5);
  h.begin("channel_delta chunked fast", "2-300 rows, cut");
  for (int i = 0; i < cases; ++i) chunked_case(h, fast, 2e-2);
}

}  // namespace motley::ops_device
