// Tolerance: as for the gated delta rule, each output is a sum of key_dim products of a state that
// gathers one rounding of 2^-24 per token; decay below one lets the errors of old tokens fade.
#include "ops/channel_delta_test_util.h"
#include "ops/cpu/cpu_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

class CpuChannelDeltaTest : public CpuOpsTest {
 protected:
  using Op = decltype(ChannelDeltaOps::recurrent);

  // Several sequences of random length in one call against the float64 reference, twice in a row
  // so that the state and the carry go through.
  void compare(Op op, Op reference_op, uint64_t seed, int64_t longest) {
    SCOPED_TRACE(seed);
    TestRandom random(seed);
    const ChannelDeltaShape shape = random_channel_shape(random, 40);
    const DecayGate gate = seed % 2 == 0 ? DecayGate::kBounded : DecayGate::kSoftplus;
    const auto sequences = static_cast<size_t>(random.integer(1, 3));
    std::vector<ChannelState<float>> states(sequences, ChannelState<float>(shape));
    std::vector<ChannelState<double>> states64;
    std::vector<int64_t> positions;
    for (ChannelState<float>& state : states) {
      state.matrix.fill_normal(random, 0.5);
      states64.push_back(to_double(shape, state));
      positions.push_back(random.integer(0, 100000));
    }
    for (int round = 0; round < 2; ++round) {
      std::vector<ChannelDeltaSegment> segments, segments64;
      int32_t rows = 0;
      for (size_t s = 0; s < sequences; ++s) {
        const auto count = static_cast<int32_t>(random.integer(1, longest));
        const RowSegment segment{RowRole::kPrefill, rows, count, {positions[s]}};
        segments.push_back(states[s].segment(segment));
        segments64.push_back(states64[s].segment(segment));
        positions[s] += count;
        rows += count;
      }
      const auto input = random_channel_input(random, shape, gate, rows);
      const auto input64 = to_double(input);
      TestTensor<float> out(Shape{rows, shape.value_dim()}, 2);
      TestTensor<double> expected(Shape{rows, shape.value_dim()});
      op(stream_, input.args(segments, &out));
      reference_op(stream_, input64.args(segments64, &expected));
      EXPECT_TRUE(all_near(out, expected, 1e-5, 1e-5));
    }
    for (size_t s = 0; s < sequences; ++s) {
      EXPECT_EQ(states[s].rows, states64[s].rows);
      table_.channel_delta.flush_carry(stream_, shape, states[s].segment({}));
      reference_.channel_delta.flush_carry(stream_, shape, states64[s].segment({}));
      EXPECT_TRUE(all_near(states[s].matrix, states64[s].matrix, 1e-5, 1e-5));
    }
  }

  // All pieces and thread counts give the bits of one whole call.
  void expect_same_bits(Op op, const ChannelDeltaShape& shape, int64_t position) {
    SCOPED_TRACE(position);
    constexpr int64_t kRows = 300;
    TestRandom random(99);
    const auto input = random_channel_input(random, shape, DecayGate::kBounded, kRows);
    ChannelState<float> start(shape);
    start.matrix.fill_normal(random);
    ChannelState<float> end = start;
    const auto whole = run_channel(op, stream_, input, position, kRows, &end);
    for (const int threads : {1, 2, 5}) {
      TestStream stream(threads);
      for (const int64_t piece : {int64_t{1}, int64_t{7}, int64_t{64}, int64_t{130}, kRows}) {
        if (piece == 1 && threads == 5) continue;  // thousands of waits for more threads than cores
        ChannelState<float> state = start;
        EXPECT_TRUE(run_channel(op, stream, input, position, piece, &state).same_bits(whole))
            << threads << " threads, pieces of " << piece;
        EXPECT_TRUE(state.matrix.same_bits(end.matrix));
        EXPECT_EQ(state.rows, end.rows);
      }
    }
  }
};

TEST_P(CpuChannelDeltaTest, RecurrentMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    compare(table_.channel_delta.recurrent, reference_.channel_delta.recurrent, seed, 40);
  }
}

TEST_P(CpuChannelDeltaTest, ChunkedMatchesTheReference) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    compare(table_.channel_delta.chunked, reference_.channel_delta.chunked, seed, 90);
  }
}

TEST_P(CpuChannelDeltaTest, AnyChunkAndThreadCountGivesTheSameBits) {
  for (const int64_t position : {int64_t{0}, int64_t{64}, int64_t{100037}}) {
    expect_same_bits(table_.channel_delta.recurrent, {2, 33, 70}, position);
    expect_same_bits(table_.channel_delta.chunked, {2, 33, 70}, position);
  }
}

TEST_P(CpuChannelDeltaTest, ASequenceDoesNotDependOnItsBatch) {
  TestRandom random(5);
  const ChannelDeltaShape shape{2, 16, 24};
  for (const Op op : {table_.channel_delta.recurrent, table_.channel_delta.chunked}) {
    const auto input = random_channel_input(random, shape, DecayGate::kBounded, 90);
    ChannelState<float> alone(shape), first(shape), second(shape);
    first.matrix.fill_normal(random);
    // Rows 40 .. 89 as the second of two sequences, then by themselves.
    TestTensor<float> together(Shape{90, shape.value_dim()});
    const ChannelDeltaSegment both[] = {first.segment({RowRole::kPrefill, 0, 40, {17}}),
                                        second.segment({RowRole::kPrefill, 40, 50, {30}})};
    op(stream_, input.args(both, &together));
    TestTensor<float> by_itself(Shape{90, shape.value_dim()});
    const ChannelDeltaSegment only = alone.segment({RowRole::kPrefill, 40, 50, {30}});
    op(stream_, input.args({&only, 1}, &by_itself));
    for (int64_t t = 40; t < 90; ++t) {
      EXPECT_EQ(std::memcmp(together.row(t), by_itself.row(t),
                            static_cast<size_t>(shape.value_dim()) * sizeof(float)),
                0);
    }
    EXPECT_TRUE(alone.matrix.same_bits(second.matrix));
  }
}

// The strongest decay for whole blocks: e^(-5 * 64) has no float and its inverse none either. A
// softplus of thousands is a plain zero, not a NaN.
TEST_P(CpuChannelDeltaTest, ExtremeGatesStayFinite) {
  TestRandom random(6);
  const ChannelDeltaShape shape{2, 16, 16};
  for (const DecayGate gate : {DecayGate::kBounded, DecayGate::kSoftplus}) {
    for (const Op op : {table_.channel_delta.recurrent, table_.channel_delta.chunked}) {
      auto input = random_channel_input(random, shape, gate, 200);
      input.lower_bound = -5.0f;
      for (int64_t t = 0; t < 200; ++t) {
        for (int64_t i = 0; i < 16; ++i) input.decay.row(t)[i] = i % 3 == 0 ? 3000.0f : -200.0f;
        input.beta.row(t)[1] = t % 2 == 0 ? 500.0f : -500.0f;
      }
      ChannelState<float> state(shape);
      ChannelState<double> state64(shape);
      const auto out = run_channel(op, stream_, input, 3, 50, &state);
      const auto expected = run_channel(reference_.channel_delta.recurrent, stream_,
                                        to_double(input), 3, 200, &state64);
      EXPECT_TRUE(all_near(out, expected, 1e-5, 1e-5));
    }
  }
}

MOTLEY_TEST_EACH_CPU(CpuChannelDeltaTest);

}  // namespace
}  // namespace motley
