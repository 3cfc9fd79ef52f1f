#include "ops/channel_delta_test_util.h"

namespace motley {
namespace {

const OpTable kTable = reference_op_table();

// The chunked form is the recurrent one up to float64 rounding, from any position and in any
// pieces, once the carry is folded in.
TEST(ReferenceChannelDelta, ChunkedEqualsRecurrent) {
  TestStream stream;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const ChannelDeltaShape shape = random_channel_shape(random, 20);
    const DecayGate gate = seed % 2 == 0 ? DecayGate::kBounded : DecayGate::kSoftplus;
    const auto input = to_double(random_channel_input(random, shape, gate, random.integer(1, 200)));
    const int64_t position = random.integer(0, 1000);
    ChannelState<double> recurrent(shape), chunked(shape);
    recurrent.matrix.fill_normal(random);
    chunked.matrix = recurrent.matrix;
    const auto expected =
        run_channel(kTable.channel_delta.recurrent, stream, input, position, 1000, &recurrent);
    const auto out = run_channel(kTable.channel_delta.chunked, stream, input, position,
                                 random.integer(1, 100), &chunked);
    EXPECT_TRUE(all_near(out, expected, 1e-12, 1e-12));
    kTable.channel_delta.flush_carry(stream, shape, chunked.segment({}));
    EXPECT_EQ(chunked.rows, 0);
    EXPECT_TRUE(all_near(chunked.matrix, recurrent.matrix, 1e-12, 1e-12));
  }
}

// One token by hand, with numbers that tell rows of the state from columns (trap 10 of the family:
// the decay multiplies key channels) and the two gates apart.
TEST(ReferenceChannelDelta, OneTokenByHand) {
  TestStream stream;
  const ChannelDeltaShape shape{1, 2, 2};
  TestRandom random(0);
  for (const DecayGate gate : {DecayGate::kBounded, DecayGate::kSoftplus}) {
    auto input = to_double(random_channel_input(random, shape, gate, 1));
    input.lower_bound = -4.0f;
    const double values[] = {0.3, -0.1, 2e-3, 1e-3, 5.0, -2.0};
    std::copy(std::begin(values), std::end(values), input.qkv.row(0));
    input.beta.row(0)[0] = 0.3;
    input.decay.row(0)[0] = -0.4;
    input.decay.row(0)[1] = 1.5;
    input.a_log.row(0)[0] = 0.25f;
    input.dt_bias.row(0)[0] = 0.5f;
    input.dt_bias.row(1)[0] = -0.25f;
    ChannelState<double> state(shape);
    const double start[] = {7.0, -1.0, 2.0, 4.0};
    std::copy(std::begin(start), std::end(start), state.matrix.row(0));
    const auto out = run_channel(kTable.channel_delta.recurrent, stream, input, 0, 1, &state);

    const double rate = std::exp(0.25);
    double factor[2];
    for (int i = 0; i < 2; ++i) {
      const double a = i == 0 ? 0.1 : 1.25;
      factor[i] = std::exp(gate == DecayGate::kBounded ? -4.0 / (1 + std::exp(-rate * a))
                                                       : -rate * std::log(1 + std::exp(a)));
    }
    const double qn = 1 / std::sqrt(0.1 + 1e-6) / std::sqrt(2.0);
    const double kn = 1 / std::sqrt(5e-6 + 1e-6);
    const double q[] = {0.3 * qn, -0.1 * qn};
    const double k[] = {2e-3 * kn, 1e-3 * kn};
    const double beta = 1 / (1 + std::exp(-0.3));
    for (int c = 0; c < 2; ++c) {
      const double s0 = factor[0] * start[c];
      const double s1 = factor[1] * start[2 + c];
      const double d = beta * (values[4 + c] - s0 * k[0] - s1 * k[1]);
      EXPECT_NEAR(state.matrix.row(0)[c], s0 + k[0] * d, 1e-12);
      EXPECT_NEAR(state.matrix.row(0)[2 + c], s1 + k[1] * d, 1e-12);
      EXPECT_NEAR(out.row(0)[c], (s0 + k[0] * d) * q[0] + (s1 + k[1] * d) * q[1], 1e-12);
    }
  }
}

// Equal decays in all channels of a head are the gated delta rule: two texts of the same maths.
TEST(ReferenceChannelDelta, EqualChannelsAreTheGatedRule) {
  TestStream stream;
  TestRandom random(4);
  const ChannelDeltaShape shape{3, 5, 4};
  constexpr int64_t kRows = 90;
  auto input = to_double(random_channel_input(random, shape, DecayGate::kSoftplus, kRows));
  TestTensor<double> decay(Shape{kRows, shape.heads});
  for (int64_t i = 0; i < shape.key_dim(); ++i) input.dt_bias.row(i)[0] = 0.5f;
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < shape.key_dim(); ++i) {
      input.decay.row(t)[i] = input.decay.row(t)[i / 5 * 5];
      decay.row(t)[i / 5] = input.decay.row(t)[i];
    }
  }
  TestTensor<float> dt_bias(Shape{shape.heads});
  for (int64_t h = 0; h < shape.heads; ++h) dt_bias.row(h)[0] = 0.5f;
  ChannelState<double> state(shape);
  state.matrix.fill_normal(random);
  TestTensor<double> gated_state = state.matrix;
  const auto out = run_channel(kTable.channel_delta.chunked, stream, input, 3, kRows, &state);
  kTable.channel_delta.flush_carry(stream, shape, state.segment({}));

  TestTensor<double> expected(out.shape());
  const GatedDeltaSegment segment{{RowRole::kPrefill, 0, kRows, {3}}, gated_state.view(), {}};
  kTable.gated_delta.recurrent(stream, {{shape.heads, shape.heads, 5, 4},
                                        std::as_const(input.qkv).view(),
                                        std::as_const(input.beta).view(),
                                        std::as_const(decay).view(),
                                        std::as_const(input.a_log).view(),
                                        std::as_const(dt_bias).view(),
                                        {&segment, 1},
                                        expected.view()});
  EXPECT_TRUE(all_near(out, expected, 1e-12, 1e-12));
  EXPECT_TRUE(all_near(state.matrix, gated_state, 1e-12, 1e-12));
}

}  // namespace
}  // namespace motley
