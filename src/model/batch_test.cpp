#include "model/batch.h"

#include <gtest/gtest.h>

#include "base/owned_context.h"

namespace motley {
namespace {

constexpr int64_t kPage = int64_t{32} * StateLayout::kTokensPerPage;

StateLayout one_cache() {
  StateLayout layout;
  layout.entries = {{.layer = 0, .kind = StateKind::kPagedKv, .bytes_per_token = 32}};
  return layout;
}

class BatchTest : public ::testing::Test {
 protected:
  SequenceState new_state() { return SequenceState::create(layout_, pool_).value(); }

  OwnedContext context_;
  StateLayout layout_ = one_cache();
  PagePool pool_{context_.get(), 3 * kPage};
};

TEST_F(BatchTest, RowsAreNumberedInOrderOfArrival) {
  SequenceState a = new_state();
  SequenceState b = new_state();
  SequenceState c = new_state();
  Batch batch;
  batch.add(RowRole::kDecode, a, std::vector<int32_t>{10}, {5});
  batch.add(RowRole::kDecode, b, std::vector<int32_t>{20, 21}, {7});
  batch.add(RowRole::kPrefill, c, std::vector<int32_t>{30, 31, 32}, {0});
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{10, 20, 21, 30, 31, 32}));
  EXPECT_EQ(batch.counts.decode, 3);
  EXPECT_EQ(batch.counts.prefill, 3);
  EXPECT_EQ(batch.rows(), 6);
  ASSERT_EQ(batch.segments.size(), 3u);
  EXPECT_EQ(batch.segments[1].rows.first_row, 1);
  EXPECT_EQ(batch.segments[1].rows.rows, 2);
  EXPECT_EQ(batch.segments[1].rows.first_position.value, 7);
  EXPECT_EQ(batch.segments[2].rows.first_row, 3);
  EXPECT_EQ(batch.segments[2].rows.role, RowRole::kPrefill);
  EXPECT_EQ(batch.segments[2].state, &c);
}

TEST_F(BatchTest, ClearStartsAgain) {
  SequenceState a = new_state();
  Batch batch;
  batch.add(RowRole::kPrefill, a, std::vector<int32_t>{1, 2}, {0});
  batch.clear();
  EXPECT_EQ(batch.rows(), 0);
  EXPECT_TRUE(batch.segments.empty());
  // A decode segment may come first again, at row 0.
  batch.add(RowRole::kDecode, a, std::vector<int32_t>{3}, {2});
  EXPECT_EQ(batch.segments.front().rows.first_row, 0);
}

TEST_F(BatchTest, ReserveCountsFromThePosition) {
  SequenceState a = new_state();
  Batch batch;
  batch.add(RowRole::kDecode, a, std::vector<int32_t>{1}, {StateLayout::kTokensPerPage});
  ASSERT_TRUE(batch.reserve().is_ok());
  EXPECT_EQ(a.bytes(), 2 * kPage) << "the row at position 64 needs the second page";
}

TEST_F(BatchTest, ReserveFailsWithTheArithmeticAndKeepsTheSequences) {
  SequenceState a = new_state();
  SequenceState b = new_state();
  Batch batch;
  batch.add(RowRole::kPrefill, a, std::vector<int32_t>(65, 0), {0});
  batch.add(RowRole::kPrefill, b, std::vector<int32_t>(65, 0), {0});
  const Status status = batch.reserve();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "sequence state needs 2048 bytes more; 6144 of the 6144 byte budget are in use");
  EXPECT_EQ(a.length(), 0);
  EXPECT_EQ(b.length(), 0);
  a.clear();
  EXPECT_TRUE(b.reserve(65).is_ok()) << "what one gives back the other gets";
}

TEST_F(BatchTest, DecodeAfterPrefillIsABug) {
  SequenceState a = new_state();
  SequenceState b = new_state();
  Batch batch;
  batch.add(RowRole::kPrefill, a, std::vector<int32_t>{1}, {0});
  EXPECT_DEATH(batch.add(RowRole::kDecode, b, std::vector<int32_t>{2}, {0}),
               "decode rows come first");
}

}  // namespace
}  // namespace motley
