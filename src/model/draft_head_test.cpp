// The draft layer: what it takes, in which order, and where its cache lies.
#include "model/draft_head.h"

#include "model/model_test_util.h"

namespace motley {
namespace {

constexpr int kHidden = TestModel::kHidden;

const DraftSpec& draft_of(const ModelUnderTest& model) {
  return model.spec().drafts.front();
}

Rows run_draft(ModelUnderTest& model, SequenceState& state, const std::vector<int32_t>& next,
               Rows hidden, int64_t first, StepObserver& observer) {
  const Decoder decoder = model.decoder();
  Batch batch;
  batch.add(RowRole::kPrefill, state, next, {first});
  EXPECT_TRUE(batch.reserve().is_ok());
  Rows out(hidden.rows, kHidden);
  EXPECT_TRUE(decoder
                  .run_draft(0, model.step(), batch, PostNormHidden{hidden.view()},
                             PostNormHidden{out.view()}, observer)
                  .is_ok());
  return out;
}

// [embedding ; hidden], each with its own norm, embedding first.
Rows joined(const ModelUnderTest& model, const std::vector<int32_t>& next, const Rows& hidden) {
  const WeightMatrix& table = model.weights().matrix(model.spec().embedding);
  Rows embedded(hidden.rows, kHidden);
  for (size_t r = 0; r < next.size(); ++r) {
    decode_row(table, next[r], embedded.row(static_cast<int64_t>(r)));
  }
  const Rows left = plain_rms_norm(embedded, draft_of(model).embedding_norm, model.weights());
  const Rows right = plain_rms_norm(hidden, draft_of(model).hidden_norm, model.weights());
  Rows result(hidden.rows, 2 * kHidden);
  for (int64_t r = 0; r < hidden.rows; ++r) {
    std::copy_n(left.row(r), kHidden, result.row(r));
    std::copy_n(right.row(r), kHidden, result.row(r) + kHidden);
  }
  return result;
}

TEST(DraftHead, IsTheFormula) {
  ModelUnderTest model(mild_model());
  const DraftSpec& spec = draft_of(model);
  const std::vector<int32_t> next = {3, 9, 27};
  const Rows hidden = varied_rows(3, kHidden, 1);
  StepObserver nobody;
  SequenceState state = model.new_state();
  const Rows actual = run_draft(model, state, next, hidden, 0, nobody);

  Rows x = times_transposed(model.weights().matrix(spec.projection), joined(model, next, hidden));
  const int index = TestModel::kLayers;
  const Layer layer(spec.layer, ResidualSpec{}, model.weights(), model.store(), index,
                    StateKind::kDraftKv, DeltaForm::kRecurrent);
  SequenceState other = model.new_state();
  const Batch batch = rows_of(other, 3, 0);
  ASSERT_TRUE(layer.run(model.step(), batch, x.view(), nobody, nullptr).is_ok());
  EXPECT_TRUE(rows_near(actual, plain_rms_norm(x, spec.final_norm, model.weights()), 1e-6));
}

TEST(DraftHead, BothInputsMatter) {
  ModelUnderTest model(mild_model());
  StepObserver nobody;
  const Rows hidden = varied_rows(1, kHidden, 2);
  SequenceState a = model.new_state();
  SequenceState b = model.new_state();
  SequenceState c = model.new_state();
  const Rows base = run_draft(model, a, {3}, hidden, 0, nobody);
  EXPECT_NE(run_draft(model, b, {4}, hidden, 0, nobody).values, base.values);
  EXPECT_NE(run_draft(model, c, {3}, varied_rows(1, kHidden, 3), 0, nobody).values, base.values);
}

// The second draft row attends to the first: the cache of the draft is kept between calls.
TEST(DraftHead, ItsCacheContinues) {
  ModelUnderTest model(mild_model());
  StepObserver nobody;
  const Rows hidden = varied_rows(4, kHidden, 4);
  SequenceState whole_state = model.new_state();
  const Rows whole = run_draft(model, whole_state, {1, 2, 3, 4}, hidden, 0, nobody);
  SequenceState state = model.new_state();
  EXPECT_EQ(run_draft(model, state, {1, 2, 3}, hidden.slice(0, 3), 0, nobody).values,
            whole.slice(0, 3).values);
  EXPECT_EQ(run_draft(model, state, {4}, hidden.slice(3, 1), 3, nobody).values,
            whole.slice(3, 1).values);
  SequenceState fresh = model.new_state();
  EXPECT_NE(run_draft(model, fresh, {4}, hidden.slice(3, 1), 0, nobody).values,
            whole.slice(3, 1).values);
}

class DraftEvents final : public StepObserver {
 public:
  bool wants_activations() const override { return true; }
  void layer_output(int layer, const Batch&, const ConstTensorView&) override {
    layers.push_back(layer);
  }
  void state_ready(int layer, StateKind kind, SequenceState&, TokenRange tokens) override {
    EXPECT_EQ(layer, TestModel::kLayers);
    EXPECT_EQ(kind, StateKind::kDraftKv);
    end = tokens.end.value;
  }
  std::vector<int> layers;
  int64_t end = 0;
};

TEST(DraftHead, CountsOnFromTheTrunkAndTouchesOnlyItsOwnState) {
  ModelUnderTest model(mild_model());
  SequenceState state = model.new_state();
  const std::vector<std::byte> before = state.save_fixed();
  DraftEvents events;
  (void)run_draft(model, state, {5, 6}, varied_rows(2, kHidden, 5), 0, events);
  EXPECT_EQ(events.layers, std::vector<int>{TestModel::kLayers});
  EXPECT_EQ(events.end, 2);
  EXPECT_EQ(state.save_fixed(), before);
  EXPECT_EQ(state.length(), 0) << "the trunk alone advances a sequence";
}

}  // namespace
}  // namespace motley
