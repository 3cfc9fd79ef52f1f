// One gated delta layer's inputs and state for several sequences, in float or double.
#pragma once

#include <vector>

#include "ops/gated_delta.h"
#include "ops/op_table.h"
#include "ops/op_test_util.h"

namespace motley {

template <typename T>
struct DeltaState {
  explicit DeltaState(const GatedDeltaShape& shape)
      : matrix(Shape{shape.value_heads, shape.key_head_dim, shape.value_head_dim}),
        keys(Shape{kDeltaBlock, shape.key_dim()}),
        updates(Shape{kDeltaBlock, shape.value_dim()}),
        decays(Shape{kDeltaBlock, shape.value_heads}) {}

  GatedDeltaSegment segment(RowSegment row_segment) {
    return {row_segment, matrix.view(), {&rows, keys.view(), updates.view(), decays.view()}};
  }

  TestTensor<T> matrix;
  int32_t rows = 0;
  TestTensor<T> keys;
  TestTensor<T> updates;
  TestTensor<T> decays;
};

inline DeltaState<double> to_double(const GatedDeltaShape& shape, const DeltaState<float>& state) {
  DeltaState<double> result(shape);
  result.matrix = to_double(state.matrix);
  result.rows = state.rows;
  result.keys = to_double(state.keys);
  result.updates = to_double(state.updates);
  result.decays = to_double(state.decays);
  return result;
}

template <typename T>
struct DeltaInput {
  GatedDeltaShape shape;
  TestTensor<T> qkv;
  TestTensor<T> beta;
  TestTensor<T> decay;
  TestTensor<float> a_log;
  TestTensor<float> dt_bias;

  GatedDeltaArgs args(std::span<const GatedDeltaSegment> segments, TestTensor<T>* out) const {
    return {shape,        qkv.view(),     beta.view(), decay.view(),
            a_log.view(), dt_bias.view(), segments,    out->view()};
  }
};

inline DeltaInput<float> random_delta_input(TestRandom& random, GatedDeltaShape shape,
                                            int64_t rows) {
  return {shape,
          random_tensor<float>(random, Shape{rows, shape.conv_dim()}, 1.0, random.integer(0, 3)),
          random_tensor<float>(random, Shape{rows, shape.value_heads}, 2.0),
          random_tensor<float>(random, Shape{rows, shape.value_heads}, 2.0),
          random_tensor<float>(random, Shape{shape.value_heads}),
          random_tensor<float>(random, Shape{shape.value_heads})};
}

inline DeltaInput<double> to_double(const DeltaInput<float>& input) {
  return {input.shape, to_double(input.qkv), to_double(input.beta), to_double(input.decay),
          input.a_log, input.dt_bias};
}

// Takes all rows of `input` as one sequence that starts at `position`, in pieces.
template <typename T>
TestTensor<T> run_delta(decltype(GatedDeltaOps::recurrent) op, Stream& stream,
                        const DeltaInput<T>& input, int64_t position, int64_t piece,
                        DeltaState<T>* state) {
  TestTensor<T> out(Shape{input.qkv.rows(), input.shape.value_dim()});
  for (int64_t t = 0; t < input.qkv.rows(); t += piece) {
    const auto rows = static_cast<int32_t>(std::min(piece, input.qkv.rows() - t));
    const GatedDeltaSegment segment =
        state->segment({RowRole::kPrefill, static_cast<int32_t>(t), rows, {position + t}});
    op(stream, input.args({&segment, 1}, &out));
  }
  return out;
}

}  // namespace motley
