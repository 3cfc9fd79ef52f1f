// The gated delta net against the formulas of ops/gated_delta.h, one token after the other.
#include "model/blocks/gated_delta.h"

#include "model/model_test_util.h"

namespace motley {
namespace {

constexpr int kLayer = 1;

const GatedDeltaSpec& delta_of(const ModelSpec& spec) {
  return std::get<GatedDeltaSpec>(spec.layers[kLayer].mixer);
}

StateFormat format_of(DeltaForm form) {
  return {
      .kv = DType::kF64, .recurrent = DType::kF64, .chunked_delta = form == DeltaForm::kChunked};
}

// silu of the causal convolution; what lies before the first token is zero.
Rows convolved(const GatedDeltaSpec& spec, const LoadedWeights& weights, const Rows& u) {
  const float* kernel = weights.convolution(spec.convolution).as<float>();
  Rows y(u.rows, u.cols);
  for (int64_t t = 0; t < u.rows; ++t) {
    for (int64_t c = 0; c < u.cols; ++c) {
      double sum = 0;
      for (int64_t back = 0; back < spec.conv_kernel && back <= t; ++back) {
        sum +=
            double{kernel[c * spec.conv_kernel + spec.conv_kernel - 1 - back]} * u.row(t - back)[c];
      }
      y.row(t)[c] = silu(sum);
    }
  }
  return y;
}

std::vector<double> unit(const double* from, int dim) {
  double sum = 0;
  for (int i = 0; i < dim; ++i) sum += from[i] * from[i];
  std::vector<double> result(from, from + dim);
  for (double& value : result) value /= std::sqrt(sum + 1e-6);
  return result;
}

// One value head over all tokens; out[t * stride + c].
void delta_head(const GatedDeltaSpec& spec, const Rows& qkv, const Rows& a, const Rows& b,
                const LoadedWeights& weights, int head, Rows* out) {
  const int dk = spec.key_head_dim;
  const int dv = spec.value_head_dim;
  const int key_head = head / (spec.value_heads / spec.key_heads);
  const double rate = std::exp(double{weights.vector(spec.a_log).as<float>()[head]});
  const double bias = double{weights.vector(spec.dt_bias).as<float>()[head]};
  Rows state(dk, dv);
  for (int64_t t = 0; t < qkv.rows; ++t) {
    const double* row = qkv.row(t);
    const std::vector<double> q = unit(row + key_head * dk, dk);
    const std::vector<double> k = unit(row + (spec.key_heads + key_head) * dk, dk);
    const double* v = row + 2 * spec.key_heads * dk + head * dv;
    const double keep = std::exp(-rate * std::log1p(std::exp(a.row(t)[head] + bias)));
    for (double& value : state.values) value *= keep;
    for (int c = 0; c < dv; ++c) {
      double known = 0;
      for (int i = 0; i < dk; ++i) known += state.row(i)[c] * k[static_cast<size_t>(i)];
      const double update = sigmoid(b.row(t)[head]) * (v[c] - known);
      double read = 0;
      for (int i = 0; i < dk; ++i) {
        state.row(i)[c] += k[static_cast<size_t>(i)] * update;
        read += state.row(i)[c] * q[static_cast<size_t>(i)] / std::sqrt(dk);
      }
      out->row(t)[head * dv + c] = read;
    }
  }
}

Rows expected_delta(const GatedDeltaSpec& spec, const LoadedWeights& weights, const Rows& x) {
  const Rows qkv = convolved(spec, weights, times_transposed(weights.matrix(spec.in_proj_qkv), x));
  const Rows z = times_transposed(weights.matrix(spec.in_proj_z), x);
  const Rows b = times_transposed(weights.matrix(spec.in_proj_b), x);
  const Rows a = times_transposed(weights.matrix(spec.in_proj_a), x);
  Rows o(x.rows, int64_t{spec.value_heads} * spec.value_head_dim);
  for (int head = 0; head < spec.value_heads; ++head) {
    delta_head(spec, qkv, a, b, weights, head, &o);
  }
  for (int64_t t = 0; t < o.rows; ++t) {
    for (int head = 0; head < spec.value_heads; ++head) {
      double* part = o.row(t) + head * spec.value_head_dim;
      const std::vector<double> plain(part, part + spec.value_head_dim);
      plain_rms_norm(plain.data(), spec.value_head_dim, spec.norm, weights, part);
    }
    for (int64_t i = 0; i < o.cols; ++i) o.row(t)[i] *= silu(z.row(t)[i]);
  }
  return times_transposed(weights.matrix(spec.out_proj), o);
}

Rows run_block(ModelUnderTest& model, DeltaForm form, SequenceState& state, Rows x, int64_t first,
               RowRole role = RowRole::kPrefill) {
  const GatedDeltaBlock block(delta_of(model.spec()), model.weights(), kLayer, form);
  const Batch batch = rows_of(state, x.rows, first, role);
  Rows out(x.rows, model.spec().hidden_size);
  EXPECT_TRUE(block.run(model.step(), batch, x.view(), out.view()).is_ok());
  return out;
}

class GatedDelta : public ::testing::TestWithParam<DeltaForm> {};

INSTANTIATE_TEST_SUITE_P(Forms, GatedDelta,
                         ::testing::Values(DeltaForm::kRecurrent, DeltaForm::kChunked),
                         [](const auto& tested) {
                           return std::string(tested.param == DeltaForm::kChunked ? "Chunked"
                                                                                  : "Recurrent");
                         });

// A block and a half of the chunked form.
TEST_P(GatedDelta, IsTheFormula) {
  ModelUnderTest model(mild_model(), "", format_of(GetParam()));
  SequenceState state = model.new_state();
  const Rows x = varied_rows(kDeltaBlock + 30, TestModel::kHidden, 1);
  EXPECT_TRUE(rows_near(run_block(model, GetParam(), state, x, 0),
                        expected_delta(delta_of(model.spec()), model.weights(), x), 1e-6));
}

// Qwen3-Next interleaves the projections by key head; gathered, they are the same net.
TEST_P(GatedDelta, NextCheckpointsGiveTheSameFormula) {
  ModelUnderTest model(mild_model({.next = true}), "", format_of(GetParam()));
  SequenceState state = model.new_state();
  const Rows x = varied_rows(10, TestModel::kHidden, 2);
  EXPECT_TRUE(rows_near(run_block(model, GetParam(), state, x, 0),
                        expected_delta(delta_of(model.spec()), model.weights(), x), 1e-6));
}

TEST_P(GatedDelta, ChunksEqualTheWhole) {
  ModelUnderTest model(mild_model(), "", format_of(GetParam()));
  const Rows x = varied_rows(100, TestModel::kHidden, 3);
  SequenceState whole_state = model.new_state();
  const Rows whole = run_block(model, GetParam(), whole_state, x, 0);
  SequenceState state = model.new_state();
  int64_t first = 0;
  for (const int64_t rows : {1, 2, 40, 21, 1, 35}) {  // ends inside, on and after a block's edge
    EXPECT_EQ(run_block(model, GetParam(), state, x.slice(first, rows), first).values,
              whole.slice(first, rows).values)
        << "rows from " << first;
    first += rows;
  }
  ASSERT_EQ(first, x.rows);
  EXPECT_EQ(state.save_fixed(), whole_state.save_fixed());
}

// A decode row after an unfinished block: the carry is folded in first and stays empty.
TEST_P(GatedDelta, DecodeContinuesPrefill) {
  ModelUnderTest model(mild_model(), "", format_of(GetParam()));
  SequenceState state = model.new_state();
  const Rows x = varied_rows(20, TestModel::kHidden, 4);
  const Rows want = expected_delta(delta_of(model.spec()), model.weights(), x);
  (void)run_block(model, GetParam(), state, x.slice(0, 18), 0);
  EXPECT_EQ(state.has_carry(), GetParam() == DeltaForm::kChunked);
  for (const int64_t t : {18, 19}) {
    const Rows out = run_block(model, GetParam(), state, x.slice(t, 1), t, RowRole::kDecode);
    EXPECT_TRUE(rows_near(out, want.slice(t, 1), 1e-6)) << t;
    EXPECT_FALSE(state.has_carry());
  }
}

TEST_P(GatedDelta, SequencesOfABatchDoNotMeet) {
  ModelUnderTest model(mild_model(), "", format_of(GetParam()));
  const Rows x = varied_rows(12, TestModel::kHidden, 5);
  SequenceState a = model.new_state();
  SequenceState b = model.new_state();
  (void)run_block(model, GetParam(), a, x.slice(0, 6), 0);
  const Rows b_alone = run_block(model, GetParam(), b, x.slice(7, 5), 0);
  const Rows a_alone = run_block(model, GetParam(), a, x.slice(6, 1), 6, RowRole::kDecode);

  SequenceState a_again = model.new_state();
  SequenceState b_again = model.new_state();
  (void)run_block(model, GetParam(), a_again, x.slice(0, 6), 0);
  Batch batch;
  batch.add(RowRole::kDecode, a_again, std::vector<int32_t>{0}, {6});
  batch.add(RowRole::kPrefill, b_again, std::vector<int32_t>(5, 0), {0});
  Rows together = x.slice(6, 6);
  Rows out(6, TestModel::kHidden);
  const GatedDeltaBlock block(delta_of(model.spec()), model.weights(), kLayer, GetParam());
  ASSERT_TRUE(block.run(model.step(), batch, together.view(), out.view()).is_ok());
  EXPECT_EQ(out.slice(0, 1).values, a_alone.values);
  EXPECT_EQ(out.slice(1, 5).values, b_alone.values);
  EXPECT_EQ(a_again.save_fixed(), a.save_fixed());
  EXPECT_EQ(b_again.save_fixed(), b.save_fixed());
}

// The window keeps inputs from before the activation: the last three rows of the projection.
TEST(GatedDeltaState, TheWindowHoldsTheLastInputs) {
  ModelUnderTest model(mild_model());
  SequenceState state = model.new_state();
  const Rows x = varied_rows(5, TestModel::kHidden, 6);
  (void)run_block(model, DeltaForm::kRecurrent, state, x, 0);
  const Rows u = times_transposed(model.weights().matrix(delta_of(model.spec()).in_proj_qkv), x);
  Rows window(3, u.cols);
  std::memcpy(window.values.data(), state.fixed(kLayer, StateKind::kConvolutionWindow),
              window.values.size() * sizeof(double));
  EXPECT_TRUE(rows_near(window, u.slice(2, 3), 1e-12));
}

TEST(GatedDeltaState, OtherLayersAreLeftAlone) {
  ModelUnderTest model(mild_model());
  SequenceState state = model.new_state();
  (void)run_block(model, DeltaForm::kRecurrent, state, varied_rows(3, TestModel::kHidden, 7), 0);
  const GatedDeltaSpec& spec = delta_of(model.spec());
  const auto bytes = sizeof(double) * static_cast<size_t>(spec.value_heads * spec.key_head_dim *
                                                          spec.value_head_dim);
  const std::vector<std::byte> zeros(bytes);
  EXPECT_NE(std::memcmp(state.fixed(kLayer, StateKind::kRecurrentMatrix), zeros.data(), bytes), 0);
  for (const int other : {0, 2}) {
    EXPECT_EQ(std::memcmp(state.fixed(other, StateKind::kRecurrentMatrix), zeros.data(), bytes), 0);
  }
}

}  // namespace
}  // namespace motley
