// Gated attention against the formulas of its header, written out row by row.
#include "model/blocks/gated_attention.h"

#include "model/model_test_util.h"

namespace motley {
namespace {

constexpr int kLayer = 3;  // the fixture's attention layer

const GatedAttentionSpec& attention_of(const ModelSpec& spec) {
  return std::get<GatedAttentionSpec>(spec.layers[kLayer].mixer);
}

// Pairs (i, i + rotary_dim / 2) of the head turn by position * theta^(-2 i / rotary_dim).
void turn(const GatedAttentionSpec& spec, int64_t position, double* head) {
  const int half = spec.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) / std::pow(spec.rope_theta, 2.0 * i / spec.rotary_dim);
    const double a = head[i];
    const double b = head[i + half];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[i + half] = a * std::sin(angle) + b * std::cos(angle);
  }
}

// What one query head sees of the keys and values up to its own row.
void attend(const double* q, const Rows& k, const Rows& v, int64_t kv_head, int64_t dim,
            int64_t visible, double* out) {
  std::vector<double> weights;
  double sum = 0;
  for (int64_t t = 0; t < visible; ++t) {
    double dot = 0;
    for (int64_t i = 0; i < dim; ++i) dot += q[i] * k.row(t)[kv_head * dim + i];
    weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(dim))));
    sum += weights.back();
  }
  for (int64_t i = 0; i < dim; ++i) {
    out[i] = 0;
    for (int64_t t = 0; t < visible; ++t) {
      out[i] += weights[static_cast<size_t>(t)] / sum * v.row(t)[kv_head * dim + i];
    }
  }
}

// The whole block over a sequence that begins at position 0.
Rows expected_attention(const GatedAttentionSpec& spec, const LoadedWeights& weights,
                        const Rows& x) {
  const int64_t dim = spec.head_dim;
  const Rows q_and_gate = times_transposed(weights.matrix(spec.q_proj), x);
  const Rows k_plain = times_transposed(weights.matrix(spec.k_proj), x);
  const Rows v = times_transposed(weights.matrix(spec.v_proj), x);
  Rows k(x.rows, k_plain.cols);
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t h = 0; h < spec.kv_heads; ++h) {
      plain_rms_norm(k_plain.row(t) + h * dim, dim, spec.k_norm, weights, k.row(t) + h * dim);
      turn(spec, t, k.row(t) + h * dim);
    }
  }
  Rows heads(x.rows, spec.heads * dim);
  std::vector<double> q(static_cast<size_t>(dim));
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t h = 0; h < spec.heads; ++h) {
      const double* from = q_and_gate.row(t) + h * 2 * dim;
      plain_rms_norm(from, dim, spec.q_norm, weights, q.data());
      turn(spec, t, q.data());
      double* out = heads.row(t) + h * dim;
      attend(q.data(), k, v, h / (spec.heads / spec.kv_heads), dim, t + 1, out);
      for (int64_t i = 0; i < dim; ++i) out[i] *= sigmoid(from[dim + i]);
    }
  }
  return times_transposed(weights.matrix(spec.o_proj), heads);
}

Rows run_block(ModelUnderTest& model, SequenceState& state, Rows x, int64_t first,
               RowRole role = RowRole::kPrefill) {
  const GatedAttentionBlock block(attention_of(model.spec()), model.weights(), kLayer,
                                  StateKind::kPagedKv);
  const Batch batch = rows_of(state, x.rows, first, role);
  Rows out(x.rows, model.spec().hidden_size);
  EXPECT_TRUE(block.run(model.step(), batch, x.view(), out.view()).is_ok());
  return out;
}

TEST(GatedAttention, IsTheFormula) {
  ModelUnderTest model(mild_model());
  SequenceState state = model.new_state();
  const Rows x = varied_rows(9, TestModel::kHidden, 1);
  EXPECT_TRUE(rows_near(run_block(model, state, x, 0),
                        expected_attention(attention_of(model.spec()), model.weights(), x), 1e-6));
}

// More than a page, so that a row reads keys from two pages and the block asks for a second one.
TEST(GatedAttention, CrossesPages) {
  ModelUnderTest model(mild_model());
  SequenceState state = model.new_state();
  const int64_t rows = StateLayout::kTokensPerPage + 5;
  const Rows x = varied_rows(rows, TestModel::kHidden, 2);
  const Rows want = expected_attention(attention_of(model.spec()), model.weights(), x);
  EXPECT_TRUE(rows_near(run_block(model, state, x, 0), want, 1e-6));
}

TEST(GatedAttention, ChunksAndSingleRowsEqualTheWhole) {
  ModelUnderTest model(mild_model());
  const Rows x = varied_rows(12, TestModel::kHidden, 3);
  SequenceState whole_state = model.new_state();
  const Rows whole = run_block(model, whole_state, x, 0);
  SequenceState state = model.new_state();
  EXPECT_EQ(run_block(model, state, x.slice(0, 7), 0).values, whole.slice(0, 7).values);
  EXPECT_EQ(run_block(model, state, x.slice(7, 4), 7).values, whole.slice(7, 4).values);
  EXPECT_EQ(run_block(model, state, x.slice(11, 1), 11, RowRole::kDecode).values,
            whole.slice(11, 1).values);
}

TEST(GatedAttention, ARowDoesNotSeeWhatComesAfterIt) {
  ModelUnderTest model(mild_model());
  Rows x = varied_rows(6, TestModel::kHidden, 4);
  SequenceState first_state = model.new_state();
  const Rows before = run_block(model, first_state, x, 0);
  for (int64_t i = 0; i < x.cols; ++i) x.row(4)[i] += 1;
  SequenceState second_state = model.new_state();
  const Rows after = run_block(model, second_state, x, 0);
  EXPECT_EQ(after.slice(0, 4).values, before.slice(0, 4).values);
  EXPECT_NE(after.slice(4, 1).values, before.slice(4, 1).values);
  EXPECT_NE(after.slice(5, 1).values, before.slice(5, 1).values);
}

// Two sequences in one batch at different positions: each as if it were alone.
TEST(GatedAttention, SequencesOfABatchDoNotMeet) {
  ModelUnderTest model(mild_model());
  const Rows x = varied_rows(9, TestModel::kHidden, 5);
  SequenceState a = model.new_state();
  SequenceState b = model.new_state();
  (void)run_block(model, a, x.slice(0, 3), 0);
  const Rows b_alone = run_block(model, b, x.slice(4, 5), 0);
  const Rows a_alone = run_block(model, a, x.slice(3, 1), 3, RowRole::kDecode);

  SequenceState a_again = model.new_state();
  SequenceState b_again = model.new_state();
  (void)run_block(model, a_again, x.slice(0, 3), 0);
  Batch batch;
  batch.add(RowRole::kDecode, a_again, std::vector<int32_t>{0}, {3});
  batch.add(RowRole::kPrefill, b_again, std::vector<int32_t>(5, 0), {0});
  ASSERT_TRUE(batch.reserve().is_ok());
  Rows together = x.slice(3, 6);
  Rows out(6, TestModel::kHidden);
  const GatedAttentionBlock block(attention_of(model.spec()), model.weights(), kLayer,
                                  StateKind::kPagedKv);
  ASSERT_TRUE(block.run(model.step(), batch, together.view(), out.view()).is_ok());
  EXPECT_EQ(out.slice(0, 1).values, a_alone.values);
  EXPECT_EQ(out.slice(1, 5).values, b_alone.values);
}

TEST(GatedAttentionDeathTest, ALayerWithoutACacheIsABug) {
  ModelUnderTest model(mild_model());
  SequenceState state = model.new_state();
  const GatedAttentionBlock block(attention_of(model.spec()), model.weights(), 0,
                                  StateKind::kPagedKv);
  const Batch batch = rows_of(state, 1, 0);
  Rows x = varied_rows(1, TestModel::kHidden, 7);
  Rows out(1, TestModel::kHidden);
  EXPECT_DEATH((void)block.run(model.step(), batch, x.view(), out.view()),
               "without a cache in the layout");
}

}  // namespace
}  // namespace motley
