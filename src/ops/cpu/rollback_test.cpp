#include "ops/rollback_test_util.h"

#include "ops/cpu/cpu_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

class CpuRollbackTest : public CpuOpsTest {};

TEST_P(CpuRollbackTest, GatedDeltaIsExact) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    expect_gated_rollback<float>(table_, stream_, seed);
  }
}

TEST_P(CpuRollbackTest, ChannelDeltaIsExact) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    expect_channel_rollback<float>(table_, stream_, seed);
  }
}

TEST_P(CpuRollbackTest, ConvolutionWindowIsExact) {
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    expect_window_rollback<float>(table_, stream_, seed);
  }
}

// One sequence verifies drafts while another of the same call decodes plainly.
TEST_P(CpuRollbackTest, TentativeAndFinalRowsMix) {
  TestRandom random(11);
  const GatedDeltaShape shape{2, 4, 24, 40};
  const auto input = random_delta_input(random, shape, 6);
  DeltaState<float> tentative(shape), final_state(shape);
  tentative.matrix.fill_normal(random);
  final_state.matrix.fill_normal(random);
  DeltaState<float> expected = final_state;
  const DeltaState<float> before = tentative;
  TestRing<float> ring(shape.key_dim(), shape.value_dim(), shape.value_heads);
  GatedDeltaSegment segments[] = {tentative.segment({RowRole::kDecode, 0, 5, {3}}),
                                  final_state.segment({RowRole::kDecode, 5, 1, {9}})};
  segments[0].ring = ring.view();
  TestTensor<float> out(Shape{6, shape.value_dim()});
  table_.gated_delta.recurrent(stream_, input.args(segments, &out));
  const GatedDeltaSegment alone = expected.segment({RowRole::kDecode, 5, 1, {9}});
  table_.gated_delta.recurrent(stream_, input.args({&alone, 1}, &out));
  EXPECT_TRUE(final_state.matrix.same_bits(expected.matrix));
  EXPECT_TRUE(tentative.matrix.same_bits(before.matrix));
}

// In float64 the replay is also the closed form
//   S_h = e^G_h S_0 + sum over j <= h of e^(G_h - G_j) k_j d_j^T.
TEST(ReferenceRollback, IsTheClosedForm) {
  const OpTable table = reference_op_table();
  TestStream stream;
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    TestRandom random(seed);
    const GatedDeltaShape shape{1, 1, static_cast<int>(random.integer(1, 20)),
                                static_cast<int>(random.integer(1, 20))};
    const auto rows = static_cast<int32_t>(random.integer(1, kMostTentative));
    const auto input = to_double(random_delta_input(random, shape, rows));
    DeltaState<double> state(shape);
    state.matrix.fill_normal(random);
    const DeltaState<double> start = state;
    TestRing<double> ring(shape.key_dim(), shape.value_dim(), 1);
    GatedDeltaSegment segment = state.segment({RowRole::kDecode, 0, rows, {0}});
    segment.ring = ring.view();
    TestTensor<double> out(Shape{rows, shape.value_dim()});
    table.gated_delta.recurrent(stream, input.args({&segment, 1}, &out));
    segment.rows.rows = static_cast<int32_t>(random.integer(0, rows));
    table.gated_delta.commit(stream, shape, segment);
    for (int64_t i = 0; i < shape.key_head_dim; ++i) {
      for (int64_t c = 0; c < shape.value_head_dim; ++c) {
        const int64_t cell = i * shape.value_head_dim + c;
        double fade = 1;
        double sum = 0;
        for (int64_t j = segment.rows.rows - 1; j >= 0; --j) {
          sum += fade * ring.keys.row(j)[i] * ring.updates.row(j)[c];
          fade *= ring.factors_of_rows.row(j)[0];
        }
        EXPECT_NEAR(state.matrix.row(0)[cell], fade * start.matrix.row(0)[cell] + sum, 1e-12);
      }
    }
  }
}

TEST(ReferenceRollback, EveryKindIsExact) {
  const OpTable table = reference_op_table();
  TestStream stream;
  for (uint64_t seed = 0; seed < random_cases<uint64_t>(200); ++seed) {
    expect_gated_rollback<double>(table, stream, seed);
    expect_channel_rollback<double>(table, stream, seed);
    expect_window_rollback<double>(table, stream, seed);
  }
}

MOTLEY_TEST_EACH_CPU(CpuRollbackTest);

}  // namespace
}  // namespace motley
