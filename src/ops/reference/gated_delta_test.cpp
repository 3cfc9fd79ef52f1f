#include "ops/delta_test_util.h"

namespace motley {
namespace {

const OpTable kTable = reference_op_table();

GatedDeltaShape random_shape(TestRandom& random) {
  const auto key_heads = static_cast<int>(random.integer(1, 3));
  return {key_heads, key_heads * static_cast<int>(random.integer(1, 3)),
          static_cast<int>(random.integer(1, 20)), static_cast<int>(random.integer(1, 20))};
}

// The chunked form is the recurrent one up to float64 rounding, from any position and in any
// pieces, once the carry is folded in.
TEST(ReferenceGatedDelta, ChunkedEqualsRecurrent) {
  TestStream stream;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const GatedDeltaShape shape = random_shape(random);
    const auto input = to_double(random_delta_input(random, shape, random.integer(1, 200)));
    const int64_t position = random.integer(0, 1000);
    DeltaState<double> recurrent(shape), chunked(shape);
    recurrent.matrix.fill_normal(random);
    chunked.matrix = recurrent.matrix;
    const auto expected =
        run_delta(kTable.gated_delta.recurrent, stream, input, position, 1000, &recurrent);
    const auto out = run_delta(kTable.gated_delta.chunked, stream, input, position,
                               random.integer(1, 100), &chunked);
    EXPECT_TRUE(all_near(out, expected, 1e-12, 1e-12));
    kTable.gated_delta.flush_carry(stream, shape, chunked.segment({}));
    EXPECT_EQ(chunked.rows, 0);
    EXPECT_TRUE(all_near(chunked.matrix, recurrent.matrix, 1e-12, 1e-12));
  }
}

// One token by hand, with numbers that tell the orders apart (trap 3 of the family: decay before
// read, query after write) and the place of the epsilon (trap 6).
TEST(ReferenceGatedDelta, OneTokenByHand) {
  TestStream stream;
  const GatedDeltaShape shape{1, 1, 1, 1};
  DeltaInput<double> input = to_double([] {
    TestRandom random(0);
    return random_delta_input(random, {1, 1, 1, 1}, 1);
  }());
  const double q = 2e-3, k = -3e-3, v = 5.0;
  input.qkv.row(0)[0] = q;
  input.qkv.row(0)[1] = k;
  input.qkv.row(0)[2] = v;
  input.beta.row(0)[0] = 0.3;
  input.decay.row(0)[0] = -0.4;
  input.a_log.row(0)[0] = 0.25f;
  input.dt_bias.row(0)[0] = 0.5f;
  DeltaState<double> state(shape);
  state.matrix.row(0)[0] = 7.0;
  const auto out = run_delta(kTable.gated_delta.recurrent, stream, input, 0, 1, &state);

  const double qn = q / std::sqrt(q * q + 1e-6);
  const double kn = k / std::sqrt(k * k + 1e-6);
  const double beta = 1 / (1 + std::exp(-0.3));
  const double decayed = 7.0 * std::exp(-std::exp(0.25) * std::log(1 + std::exp(0.1)));
  const double written = decayed + kn * beta * (v - decayed * kn);
  EXPECT_NEAR(state.matrix.row(0)[0], written, 1e-12);
  EXPECT_NEAR(out.row(0)[0], written * qn, 1e-12);
}

// Value head h reads key head h / r.
TEST(ReferenceGatedDelta, ValueHeadsShareKeyHeadsInBlocks) {
  TestStream stream;
  TestRandom random(7);
  const GatedDeltaShape shape{2, 4, 3, 2};
  auto input = to_double(random_delta_input(random, shape, 1));
  const auto run = [&] {
    DeltaState<double> state(shape);
    return run_delta(kTable.gated_delta.recurrent, stream, input, 0, 1, &state);
  };
  const auto before = run();
  input.qkv.row(0)[0] += 1.0;  // key head 0
  const auto after = run();
  for (int h = 0; h < 4; ++h) {
    EXPECT_EQ(before.row(0)[2 * h] == after.row(0)[2 * h], h >= 2) << h;
  }
}

// Trap 11: at a block boundary the state already holds the block's last token.
TEST(ReferenceGatedDelta, StateAtABoundaryIsComplete) {
  TestStream stream;
  TestRandom random(8);
  const GatedDeltaShape shape{1, 2, 4, 4};
  const auto input = to_double(random_delta_input(random, shape, 64));
  DeltaState<double> chunked(shape), recurrent(shape);
  run_delta(kTable.gated_delta.chunked, stream, input, 0, 64, &chunked);
  run_delta(kTable.gated_delta.recurrent, stream, input, 0, 64, &recurrent);
  EXPECT_EQ(chunked.rows, 0);
  EXPECT_TRUE(all_near(chunked.matrix, recurrent.matrix, 1e-12));
}

}  // namespace
}  // namespace motley
