// Residual streams through the decoder: embedding, layers, final norm.
#include "model/residual.h"

#include "model/channel_delta_test_util.h"
#include "ops/cpu/cpu_backend.h"

namespace motley {
namespace {

using S = KimiShape;
constexpr int64_t kHidden = TestModel::kHidden;

void change(ModelSpec* spec) {
  use_kimi_layer(spec, true);
  use_streams(spec);
}

TensorView streams_view(Rows& rows) {
  return view_of(rows.values.data(), {rows.rows, S::kStreams, kHidden});
}

class ResidualStreams : public ::testing::Test {
 protected:
  ModelUnderTest model_{kimi_model(),
                        "",
                        {.kv = DType::kF64, .recurrent = DType::kF64},
                        reference_op_table(),
                        change};
  StepObserver nobody_;
};

TEST_F(ResidualStreams, StartAsCopiesAndEndAsTheirMean) {
  const Decoder decoder = model_.decoder();
  EXPECT_EQ(decoder.residual_shape(3), (Shape{3, S::kStreams, kHidden}));
  const std::vector<int32_t> tokens = {31, 4};
  Rows hidden(2, S::kStreams * kHidden);
  decoder.embed(model_.step(), tokens, streams_view(hidden));
  std::vector<double> row(kHidden);
  decode_row(model_.weights().matrix(model_.spec().embedding), 4, row.data());
  for (int64_t i = 0; i < hidden.cols; ++i) {
    ASSERT_EQ(hidden.row(1)[i], row[static_cast<size_t>(i % kHidden)]);
  }

  hidden = varied_rows(2, S::kStreams * kHidden, 5);
  Rows mean(2, kHidden), normed(2, kHidden);
  for (int64_t i = 0; i < hidden.cols; ++i) {
    for (int64_t r = 0; r < 2; ++r) mean.row(r)[i % kHidden] += hidden.row(r)[i] / S::kStreams;
  }
  (void)decoder.final_norm(model_.step(), PreNormHidden{streams_view(hidden)}, normed.view());
  EXPECT_TRUE(
      rows_near(normed, plain_rms_norm(mean, model_.spec().final_norm, model_.weights()), 1e-6));
}

// A layer is mix, norm, mixer, merge, then the same with the feed-forward: here spelt out with the
// ops, whose arithmetic has tests of its own.
TEST_F(ResidualStreams, ALayerMixesAndMergesTwice) {
  const Decoder decoder = model_.decoder();
  const LayerSpec& layer = model_.spec().layers[0];
  const Rows start = varied_rows(5, S::kStreams * kHidden, 2);
  Rows actual = start;
  SequenceState state = model_.new_state();
  const Batch batch = rows_of(state, 5, 0);
  ASSERT_TRUE(decoder.run_layer(0, model_.step(), batch, streams_view(actual), nobody_).is_ok());

  SequenceState other = model_.new_state();
  const Batch again = rows_of(other, 5, 0);
  Rows want = start;
  const auto pass = [&](const HyperConnectionSpec& hyper, const NormSpec& norm, const auto& run) {
    const HyperParams params{
        .streams = S::kStreams, .sinkhorn_iterations = 5, .norm_epsilon = 1e-5f};
    const LoadedWeights& weights = model_.weights();
    Rows coefficients(5, params.coefficients()), x(5, kHidden), out(5, kHidden);
    const HyperOps& ops = model_.table().hyper;
    ops.mix(model_.stream(), streams_view(want),
            {weights.table(hyper.fn), weights.vector(hyper.base), weights.vector(hyper.scale)},
            params, coefficients.view(), x.view());
    Rows normed = plain_rms_norm(x, norm, weights);
    ASSERT_TRUE(run(normed.view(), out.view()).is_ok());
    ops.merge(model_.stream(), out.view(), coefficients.view(), streams_view(want));
  };
  const ChannelDeltaBlock mixer(std::get<ChannelDeltaSpec>(layer.mixer), model_.weights(), 0,
                                DeltaForm::kRecurrent);
  pass(layer.mixer_hyper, layer.mixer_norm, [&](const TensorView& x, const TensorView& out) {
    return mixer.run(model_.step(), again, x, out);
  });
  const MoeBlock moe(std::get<MoeSpec>(layer.feed_forward), model_.weights(), model_.store(), 0);
  pass(layer.feed_forward_hyper, layer.feed_forward_norm,
       [&](const TensorView& x, const TensorView& out) {
         return moe.run(model_.step(), again, x, out, nobody_, [] {});
       });
  EXPECT_TRUE(rows_near(actual, want, 1e-12));
  EXPECT_FALSE(rows_near(actual, start, 1e-3)) << "the layer did something";
}

// The whole trunk and the draft layer, whose residual is plain; any chunking gives the same bits.
TEST(ResidualStreamsOnTheCpu, ChunksGiveTheSameBits) {
  for (const NumericProfile profile : {NumericProfile::kExact, NumericProfile::kFast}) {
    ModelUnderTest model(kimi_model(), "", {.chunked_delta = true},
                         cpu_op_table(choose_cpu_isa("").value(), profile), change);
    const Decoder decoder = model.decoder(DeltaForm::kChunked);
    StepObserver nobody;
    const auto run = [&](int64_t chunk) {
      SequenceState state = model.new_state();
      std::vector<float> result;
      for (int64_t first = 0; first < 90; first += chunk) {
        Batch batch;
        std::vector<int32_t> tokens;
        for (int64_t t = first; t < std::min<int64_t>(first + chunk, 90); ++t) {
          tokens.push_back(static_cast<int32_t>(t % TestModel::kVocab));
        }
        batch.add(RowRole::kPrefill, state, tokens, {first});
        EXPECT_TRUE(batch.reserve().is_ok());
        const Arena::Scope scope(model.stream().scratch());
        const TensorView hidden = model.step().scratch(decoder.residual_shape(batch.rows()));
        decoder.embed(model.step(), batch.tokens, hidden);
        EXPECT_TRUE(decoder.run_layers(model.step(), batch, hidden, nobody).is_ok());
        result.insert(result.end(), hidden.as<float>(),
                      hidden.as<float>() + hidden.shape.elements());
      }
      return result;
    };
    const std::vector<float> whole = run(90);
    for (const int64_t chunk : {1, 7, 64}) {
      const std::vector<float> pieces = run(chunk);
      ASSERT_EQ(pieces.size(), whole.size());
      EXPECT_EQ(std::memcmp(pieces.data(), whole.data(), whole.size() * sizeof(float)), 0)
          << "chunks of " << chunk;
    }
  }
}

}  // namespace
}  // namespace motley
