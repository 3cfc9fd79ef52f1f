// How layers, norms, head and draft are put together, and what a step tells its observer.
#include "model/decoder.h"

#include <map>

#include "model/model_test_util.h"

namespace motley {
namespace {

constexpr int kHidden = TestModel::kHidden;

Batch tokens_of(SequenceState& state, const std::vector<int32_t>& tokens, int64_t first,
                RowRole role = RowRole::kPrefill) {
  Batch batch;
  batch.add(role, state, tokens, {first});
  const Status status = batch.reserve();
  MOTLEY_CHECK(status.is_ok(), status.message());
  return batch;
}

// The residual stream after all layers.
Rows run_trunk(ModelUnderTest& model, const Decoder& decoder, const Batch& batch,
               StepObserver& observer) {
  Rows hidden(batch.rows(), kHidden);
  decoder.embed(model.step(), batch.tokens, hidden.view());
  EXPECT_TRUE(decoder.run_layers(model.step(), batch, hidden.view(), observer).is_ok());
  return hidden;
}

// Keeps what every hook was given.
class Recorder final : public StepObserver {
 public:
  bool wants_activations() const override { return wants; }
  void layer_output(int layer, const Batch&, const ConstTensorView& hidden) override {
    Rows& rows = outputs[layer];
    rows = Rows(hidden.rows(), hidden.cols());
    for (int64_t r = 0; r < hidden.rows(); ++r) {
      std::copy_n(hidden.row<double>(r), hidden.cols(), rows.row(r));
    }
    order.push_back("output " + std::to_string(layer));
  }
  ConstTensorView router_scores(int layer, const Batch&, const RouterScores&) override {
    order.push_back("logits " + std::to_string(layer));
    return {};
  }
  void routing(int layer, const Batch&, const Routing&) override {
    order.push_back("routing " + std::to_string(layer));
  }
  void state_ready(int layer, StateKind kind, SequenceState& state, TokenRange tokens) override {
    order.push_back("state " + std::to_string(layer));
    ready.push_back({layer, kind, &state, tokens});
  }

  struct Ready {
    int layer;
    StateKind kind;
    SequenceState* state;
    TokenRange tokens;
  };
  bool wants = true;
  std::map<int, Rows> outputs;
  std::vector<std::string> order;
  std::vector<Ready> ready;
};

TEST(Decoder, EmbedsRowsOfTheTable) {
  ModelUnderTest model(mild_model());
  const Decoder decoder = model.decoder();
  EXPECT_EQ(decoder.layers(), TestModel::kLayers);
  EXPECT_EQ(decoder.drafts(), 1);
  EXPECT_EQ(decoder.hidden_size(), kHidden);
  EXPECT_EQ(decoder.vocab_size(), TestModel::kVocab);
  const std::vector<int32_t> tokens = {31, 0, 31};
  Rows hidden(3, kHidden);
  decoder.embed(model.step(), tokens, hidden.view());
  std::vector<double> row(kHidden);
  decode_row(model.weights().matrix(model.spec().embedding), 31, row.data());
  EXPECT_EQ(hidden.slice(0, 1).values, row);
  EXPECT_EQ(hidden.slice(2, 1).values, row);
  EXPECT_NE(hidden.slice(1, 1).values, row);
}

// h <- h + mixer(norm h); h <- h + feed_forward(norm h), for one layer of each mixer.
TEST(Decoder, ALayerIsTwoResidualSteps) {
  ModelUnderTest model(mild_model());
  const Decoder decoder = model.decoder();
  StepObserver nobody;
  for (const int index : {0, 3}) {
    const LayerSpec& layer = model.spec().layers[static_cast<size_t>(index)];
    SequenceState state = model.new_state();
    const Batch batch = rows_of(state, 5, 0);
    const Rows start = varied_rows(5, kHidden, index);
    Rows actual = start;
    ASSERT_TRUE(decoder.run_layer(index, model.step(), batch, actual.view(), nobody).is_ok());

    SequenceState other = model.new_state();
    const Batch again = rows_of(other, 5, 0);
    Rows want = start;
    Rows normed = plain_rms_norm(want, layer.mixer_norm, model.weights());
    Rows out(5, kHidden);
    if (index == 0) {
      const GatedDeltaBlock block(std::get<GatedDeltaSpec>(layer.mixer), model.weights(), index,
                                  DeltaForm::kRecurrent);
      ASSERT_TRUE(block.run(model.step(), again, normed.view(), out.view()).is_ok());
    } else {
      const GatedAttentionBlock block(std::get<GatedAttentionSpec>(layer.mixer), model.weights(),
                                      index, StateKind::kPagedKv);
      ASSERT_TRUE(block.run(model.step(), again, normed.view(), out.view()).is_ok());
    }
    for (size_t i = 0; i < want.values.size(); ++i) want.values[i] += out.values[i];
    normed = plain_rms_norm(want, layer.feed_forward_norm, model.weights());
    const MoeBlock moe(std::get<MoeSpec>(layer.feed_forward), model.weights(), model.store(),
                       index);
    ASSERT_TRUE(moe.run(model.step(), again, normed.view(), out.view(), nobody, [] {}).is_ok());
    for (size_t i = 0; i < want.values.size(); ++i) want.values[i] += out.values[i];
    EXPECT_TRUE(rows_near(actual, want, 1e-6)) << "layer " << index;
  }
}

TEST(Decoder, FinalNormAndHead) {
  ModelUnderTest model(mild_model());
  const Decoder decoder = model.decoder();
  Rows hidden = varied_rows(4, kHidden, 5);
  const Rows normed = plain_rms_norm(hidden, model.spec().final_norm, model.weights());
  const Rows want = times_transposed(model.weights().matrix(model.spec().head), normed);
  const PostNormHidden in_place =
      decoder.final_norm(model.step(), PreNormHidden{hidden.view()}, hidden.view());
  EXPECT_TRUE(rows_near(hidden, normed, 1e-9));
  Rows logits(4, TestModel::kVocab);
  decoder.logits(model.step(), in_place, {.decode = 1, .prefill = 3}, logits.view());
  EXPECT_TRUE(rows_near(logits, want, 1e-9));
}

TEST(Decoder, ATiedHeadIsTheEmbedding) {
  ModelUnderTest model(mild_model({.tied = true}));
  const Decoder decoder = model.decoder();
  Rows hidden = varied_rows(2, kHidden, 6);
  Rows logits(2, TestModel::kVocab);
  decoder.logits(model.step(), PostNormHidden{hidden.view()}, {.prefill = 2}, logits.view());
  EXPECT_TRUE(rows_near(
      logits, times_transposed(model.weights().matrix(model.spec().embedding), hidden), 1e-9));
}

TEST(Decoder, ChunksOfAnySizeGiveTheBitsOfTheWhole) {
  for (const DeltaForm form : {DeltaForm::kRecurrent, DeltaForm::kChunked}) {
    ModelUnderTest model(mild_model(), "",
                         {.kv = DType::kF64,
                          .recurrent = DType::kF64,
                          .chunked_delta = form == DeltaForm::kChunked});
    const Decoder decoder = model.decoder(form);
    StepObserver nobody;
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 80; ++i) tokens.push_back(i * 7 % TestModel::kVocab);
    SequenceState whole_state = model.new_state();
    const Rows whole = run_trunk(model, decoder, tokens_of(whole_state, tokens, 0), nobody);
    EXPECT_EQ(whole_state.length(), 80);
    SequenceState state = model.new_state();
    int64_t first = 0;
    for (const int64_t rows : {5, 1, 58, 16}) {
      const std::vector<int32_t> part(tokens.begin() + first, tokens.begin() + first + rows);
      EXPECT_EQ(run_trunk(model, decoder, tokens_of(state, part, first), nobody).values,
                whole.slice(first, rows).values)
          << "rows from " << first;
      first += rows;
      EXPECT_EQ(state.length(), first);
    }
  }
}

TEST(Decoder, HooksComeInOrderAndSeeTheResidualStream) {
  ModelUnderTest model(mild_model());
  const Decoder decoder = model.decoder();
  SequenceState state = model.new_state();
  Recorder recorder;
  const Rows hidden = run_trunk(model, decoder, tokens_of(state, {1, 2, 3}, 0), recorder);
  const std::vector<std::string> delta_layer = {"state 0", "state 0", "logits 0", "routing 0",
                                                "output 0"};
  ASSERT_GE(recorder.order.size(), delta_layer.size());
  EXPECT_EQ(std::vector<std::string>(recorder.order.begin(), recorder.order.begin() + 5),
            delta_layer);
  ASSERT_EQ(recorder.outputs.size(), 4u);
  EXPECT_EQ(recorder.outputs.at(3).values, hidden.values) << "the last output is what comes back";
  EXPECT_NE(recorder.outputs.at(2).values, hidden.values);
}

TEST(Decoder, StateEventsNameSequenceKindAndRange) {
  ModelUnderTest model(mild_model());
  const Decoder decoder = model.decoder();
  SequenceState a = model.new_state();
  SequenceState b = model.new_state();
  StepObserver nobody;
  (void)run_trunk(model, decoder, tokens_of(a, {4, 5}, 0), nobody);
  Batch batch;
  batch.add(RowRole::kDecode, a, std::vector<int32_t>{6}, {2});
  batch.add(RowRole::kPrefill, b, std::vector<int32_t>{7, 8, 9}, {0});
  ASSERT_TRUE(batch.reserve().is_ok());
  Recorder recorder;
  recorder.wants = false;
  (void)run_trunk(model, decoder, batch, recorder);
  EXPECT_TRUE(recorder.outputs.empty()) << "activations were not asked for";
  // Three delta layers with two pieces each and one attention layer, for each of two sequences.
  ASSERT_EQ(recorder.ready.size(), 2u * (3 * 2 + 1));
  for (const Recorder::Ready& event : recorder.ready) {
    const bool is_a = event.state == &a;
    EXPECT_TRUE(is_a || event.state == &b);
    EXPECT_EQ(event.tokens.begin.value, is_a ? 2 : 0);
    EXPECT_EQ(event.tokens.end.value, 3);
    EXPECT_EQ(event.kind == StateKind::kPagedKv, event.layer == 3);
  }
  EXPECT_EQ(a.length(), 3);
  EXPECT_EQ(b.length(), 3);
}

// A peer that vanishes at the n-th sum.
class LostPeer final : public Collective {
 public:
  explicit LostPeer(int fails_at) : fails_at_(fails_at) {}
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  Status all_reduce_sum(std::span<float>) override { return io_error("float32 was not expected"); }
  Status all_reduce_sum(std::span<double> values) override {
    largest = std::max(largest, values.size());
    return ++calls == fails_at_ ? io_error("peer 1 is gone") : Status::ok();
  }
  Status all_gather(std::span<const std::byte>, std::span<std::byte>) override {
    return Status::ok();
  }
  Status barrier() override { return Status::ok(); }

  int calls = 0;
  size_t largest = 0;

 private:
  int fails_at_;
};

TEST(Decoder, AFailingSumStopsTheStepAndLeavesTheLength) {
  ModelUnderTest model(mild_model());
  const Decoder decoder = model.decoder();
  StepObserver nobody;
  for (const int at : {1, 2, 7, 8}) {  // mixer and feed-forward of the first and the last layer
    LostPeer peer(at);
    StepContext step = model.step_with(peer);
    SequenceState state = model.new_state();
    const Batch batch = tokens_of(state, {1, 2}, 0);
    Rows hidden(2, kHidden);
    decoder.embed(step, batch.tokens, hidden.view());
    const Status status = decoder.run_layers(step, batch, hidden.view(), nobody);
    EXPECT_EQ(status.message(), "peer 1 is gone");
    EXPECT_EQ(peer.calls, at) << "nothing runs after the failure";
    EXPECT_EQ(peer.largest, 2u * kHidden) << "only the residual's width crosses the ranks";
    EXPECT_EQ(state.length(), 0);
  }
}

TEST(Decoder, ScratchIsGivenBackAfterEveryStep) {
  ModelUnderTest model(mild_model());
  const Decoder decoder = model.decoder();
  StepObserver nobody;
  SequenceState state = model.new_state();
  (void)run_trunk(model, decoder, tokens_of(state, {1, 2, 3, 4}, 0), nobody);
  const size_t peak = model.stream().scratch().peak_bytes();
  for (int64_t i = 4; i < 12; i += 4) {
    (void)run_trunk(model, decoder, tokens_of(state, {1, 2, 3, 4}, i), nobody);
  }
  EXPECT_GT(peak, 0u);
  EXPECT_EQ(model.stream().scratch().peak_bytes(), peak);
}

}  // namespace
}  // namespace motley
