// The property that verification of drafts rests on, for any backend and number type: tentative
// rows give the outputs of ordinary ones and leave the state alone, and a commit of h rows leaves
// bit for bit the state of h ordinary rows, whatever lies in the ring beyond them.
#pragma once

#include <limits>

#include "ops/channel_delta_test_util.h"
#include "ops/delta_test_util.h"

namespace motley {

constexpr int32_t kMostTentative = 9;

template <typename T>
struct TestRing {
  TestRing(int64_t key_dim, int64_t value_dim, int64_t factors)
      : keys(Shape{kMostTentative, key_dim}),
        updates(Shape{kMostTentative, value_dim}),
        factors_of_rows(Shape{kMostTentative, factors}) {}

  DeltaRing view() { return {keys.view(), updates.view(), factors_of_rows.view()}; }
  // Entries of rejected rows must not matter.
  void poison_from(int64_t entry) {
    for (TestTensor<T>* tensor : {&keys, &updates, &factors_of_rows}) poison_rows(tensor, entry);
  }
  static void poison_rows(TestTensor<T>* tensor, int64_t first) {
    for (int64_t r = first; r < tensor->rows(); ++r) {
      std::fill_n(tensor->row(r), tensor->cols(), std::numeric_limits<T>::quiet_NaN());
    }
  }

  TestTensor<T> keys;
  TestTensor<T> updates;
  TestTensor<T> factors_of_rows;
};

template <typename T>
void expect_same_rows(const TestTensor<T>& actual, const TestTensor<T>& expected, int64_t rows) {
  for (int64_t t = 0; t < rows; ++t) {
    ASSERT_EQ(
        std::memcmp(actual.row(t), expected.row(t), static_cast<size_t>(actual.cols()) * sizeof(T)),
        0)
        << "row " << t;
  }
}

// Rounds of 1 to 9 tentative rows, of which 0 to all are accepted. `input_of(rows)` is the next
// input, `run(input, segment, out)` and `commit(segment)` are the ops.
template <typename T, typename State, typename InputOf, typename Run, typename Commit>
void expect_exact_rollback(TestRandom& random, State state, TestRing<T> ring, int64_t value_dim,
                           InputOf input_of, Run run, Commit commit) {
  State plain = state;
  for (int round = 0; round < 8; ++round) {
    const auto rows = static_cast<int32_t>(random.integer(1, kMostTentative));
    const auto accepted = static_cast<int32_t>(random.integer(0, rows));
    const auto input = input_of(rows);
    TestTensor<T> out(Shape{rows, value_dim});
    TestTensor<T> expected(Shape{rows, value_dim});
    const State before = state;
    auto segment = state.segment({RowRole::kDecode, 0, rows, {round}});
    segment.ring = ring.view();
    ring.poison_from(0);
    run(input, segment, &out);
    EXPECT_TRUE(state.matrix.same_bits(before.matrix)) << "tentative rows only read the state";
    ring.poison_from(accepted);

    State longer = plain;  // all rows, the accepted ones of which become the truth
    for (int32_t t = 0; t < rows; ++t) {
      State& target = t < accepted ? plain : longer;
      if (t == accepted) longer = plain;
      run(input, target.segment({RowRole::kDecode, t, 1, {round}}), &expected);
    }
    expect_same_rows(out, expected, rows);
    segment.rows.rows = accepted;
    commit(segment);
    ASSERT_TRUE(state.matrix.same_bits(plain.matrix)) << accepted << " of " << rows;
  }
}

template <typename T>
void expect_gated_rollback(const OpTable& table, Stream& stream, uint64_t seed) {
  SCOPED_TRACE(seed);
  TestRandom random(seed);
  const auto key_heads = static_cast<int>(random.integer(1, 3));
  const GatedDeltaShape shape{key_heads, key_heads * static_cast<int>(random.integer(1, 3)),
                              static_cast<int>(random.integer(1, 40)),
                              static_cast<int>(random.integer(1, 70))};
  DeltaState<T> state(shape);
  state.matrix.fill_normal(random, 0.5);
  expect_exact_rollback<T>(
      random, state, TestRing<T>(shape.key_dim(), shape.value_dim(), shape.value_heads),
      shape.value_dim(),
      [&](int64_t rows) {
        if constexpr (std::is_same_v<T, double>) {
          return to_double(random_delta_input(random, shape, rows));
        } else {
          return random_delta_input(random, shape, rows);
        }
      },
      [&](const DeltaInput<T>& input, const GatedDeltaSegment& segment, TestTensor<T>* out) {
        table.gated_delta.recurrent(stream, input.args({&segment, 1}, out));
      },
      [&](const GatedDeltaSegment& segment) { table.gated_delta.commit(stream, shape, segment); });
}

template <typename T>
void expect_channel_rollback(const OpTable& table, Stream& stream, uint64_t seed) {
  SCOPED_TRACE(seed);
  TestRandom random(seed);
  const ChannelDeltaShape shape = random_channel_shape(random, 60);
  const DecayGate gate = seed % 2 == 0 ? DecayGate::kBounded : DecayGate::kSoftplus;
  ChannelState<T> state(shape);
  state.matrix.fill_normal(random, 0.5);
  expect_exact_rollback<T>(
      random, state, TestRing<T>(shape.key_dim(), shape.value_dim(), shape.key_dim()),
      shape.value_dim(),
      [&](int64_t rows) {
        if constexpr (std::is_same_v<T, double>) {
          return to_double(random_channel_input(random, shape, gate, rows));
        } else {
          return random_channel_input(random, shape, gate, rows);
        }
      },
      [&](const ChannelInput<T>& input, const ChannelDeltaSegment& segment, TestTensor<T>* out) {
        table.channel_delta.recurrent(stream, input.args({&segment, 1}, out));
      },
      [&](const ChannelDeltaSegment& segment) {
        table.channel_delta.commit(stream, shape, segment);
      });
}

template <typename T>
void expect_window_rollback(const OpTable& table, Stream& stream, uint64_t seed) {
  SCOPED_TRACE(seed);
  TestRandom random(seed);
  const int64_t channels = random.integer(1, 600);
  const int64_t kernel = random.integer(2, 6);
  const auto weight = random_tensor<float>(random, Shape{channels, kernel});
  auto window = random_tensor<T>(random, Shape{kernel - 1, channels});
  TestTensor<T> plain = window;
  TestTensor<T> ring(Shape{kMostTentative, channels});
  for (int round = 0; round < 8; ++round) {
    const auto rows = static_cast<int32_t>(random.integer(1, kMostTentative));
    const auto accepted = static_cast<int32_t>(random.integer(0, rows));
    const auto u = random_tensor<T>(random, Shape{rows, channels});
    TestTensor<T> y(u.shape());
    TestTensor<T> expected(u.shape());
    const TestTensor<T> before = window;
    ConvolutionSegment segment{{RowRole::kDecode, 0, rows, {round}}, window.view(), ring.view()};
    table.convolution.causal_convolution(stream, u.view(), weight.view(), {&segment, 1}, y.view());
    EXPECT_TRUE(window.same_bits(before)) << "tentative rows only read the window";
    TestRing<T>::poison_rows(&ring, accepted);
    TestTensor<T> all = plain;
    const ConvolutionSegment whole{{RowRole::kDecode, 0, rows, {round}}, all.view(), {}};
    table.convolution.causal_convolution(stream, u.view(), weight.view(), {&whole, 1},
                                         expected.view());
    EXPECT_TRUE(y.same_bits(expected));
    const ConvolutionSegment part{{RowRole::kDecode, 0, accepted, {round}}, plain.view(), {}};
    table.convolution.causal_convolution(stream, u.view(), weight.view(), {&part, 1},
                                         expected.view());
    segment.rows.rows = accepted;
    table.convolution.commit(stream, segment);
    ASSERT_TRUE(window.same_bits(plain)) << accepted << " of " << rows;
  }
}

}  // namespace motley
