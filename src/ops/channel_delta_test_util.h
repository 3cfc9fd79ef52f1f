// One layer's inputs and state of the delta rule with a decay per channel, in float or double.
#pragma once

#include <vector>

#include "ops/channel_delta.h"
#include "ops/op_table.h"
#include "ops/op_test_util.h"

namespace motley {

template <typename T>
struct ChannelState {
  explicit ChannelState(const ChannelDeltaShape& shape)
      : matrix(Shape{shape.heads, shape.key_head_dim, shape.value_head_dim}),
        keys(Shape{kDeltaBlock, shape.key_dim()}),
        updates(Shape{kDeltaBlock, shape.value_dim()}),
        decay(Shape{1, shape.key_dim()}) {}

  ChannelDeltaSegment segment(RowSegment row_segment) {
    return {row_segment, matrix.view(), {&rows, keys.view(), updates.view(), decay.view()}};
  }

  TestTensor<T> matrix;
  int32_t rows = 0;
  TestTensor<T> keys;
  TestTensor<T> updates;
  TestTensor<T> decay;
};

inline ChannelState<double> to_double(const ChannelDeltaShape& shape,
                                      const ChannelState<float>& state) {
  ChannelState<double> result(shape);
  result.matrix = to_double(state.matrix);
  result.rows = state.rows;
  result.keys = to_double(state.keys);
  result.updates = to_double(state.updates);
  result.decay = to_double(state.decay);
  return result;
}

template <typename T>
struct ChannelInput {
  ChannelDeltaShape shape;
  DecayGate gate = DecayGate::kBounded;
  float lower_bound = -5.0f;
  TestTensor<T> qkv;
  TestTensor<T> beta;
  TestTensor<T> decay;
  TestTensor<float> a_log;
  TestTensor<float> dt_bias;

  ChannelDeltaArgs args(std::span<const ChannelDeltaSegment> segments, TestTensor<T>* out) const {
    return {shape,        gate,         lower_bound,    qkv.view(), beta.view(),
            decay.view(), a_log.view(), dt_bias.view(), segments,   out->view()};
  }
};

inline ChannelDeltaShape random_channel_shape(TestRandom& random, int64_t longest) {
  return {static_cast<int>(random.integer(1, 3)), static_cast<int>(random.integer(1, longest)),
          static_cast<int>(random.integer(1, longest))};
}

inline ChannelInput<float> random_channel_input(TestRandom& random, ChannelDeltaShape shape,
                                                DecayGate gate, int64_t rows) {
  return {shape,
          gate,
          random.chance(0.5) ? -5.0f : -0.5f,
          random_tensor<float>(random, Shape{rows, shape.conv_dim()}, 1.0, random.integer(0, 3)),
          random_tensor<float>(random, Shape{rows, shape.heads}, 2.0),
          random_tensor<float>(random, Shape{rows, shape.key_dim()}, 2.0, random.integer(0, 3)),
          random_tensor<float>(random, Shape{shape.heads}),
          random_tensor<float>(random, Shape{shape.key_dim()})};
}

inline ChannelInput<double> to_double(const ChannelInput<float>& input) {
  return {input.shape,           input.gate,
          input.lower_bound,     to_double(input.qkv),
          to_double(input.beta), to_double(input.decay),
          input.a_log,           input.dt_bias};
}

// Takes all rows of `input` as one sequence that starts at `position`, in pieces.
template <typename T>
TestTensor<T> run_channel(decltype(ChannelDeltaOps::recurrent) op, Stream& stream,
                          const ChannelInput<T>& input, int64_t position, int64_t piece,
                          ChannelState<T>* state) {
  TestTensor<T> out(Shape{input.qkv.rows(), input.shape.value_dim()});
  for (int64_t t = 0; t < input.qkv.rows(); t += piece) {
    const auto rows = static_cast<int32_t>(std::min(piece, input.qkv.rows() - t));
    const ChannelDeltaSegment segment =
        state->segment({RowRole::kPrefill, static_cast<int32_t>(t), rows, {position + t}});
    op(stream, input.args({&segment, 1}, &out));
  }
  return out;
}

}  // namespace motley
