#include "ops/op_table.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(OpTable, MissingOpsAreNamed) {
  OpTable table;
  table.name = "empty";
  const Status status = check_complete(table, OpNeeds::all());
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("backend empty lacks the ops linear, embed"), std::string::npos);
  EXPECT_NE(status.message().find("combine"), std::string::npos);
  EXPECT_NE(status.message().find("channel_delta.chunked"), std::string::npos);
  EXPECT_NE(status.message().find("pool_keys"), std::string::npos);
  EXPECT_NE(status.message().find("swiglu_limit"), std::string::npos);
}

// What a model does not call may be missing.
TEST(OpTable, OnlyNeededGroupsAreAskedFor) {
  OpTable table = reference_op_table();
  table.hyper = {};
  EXPECT_TRUE(check_complete(table, {.channel_delta = true}).is_ok());
  EXPECT_EQ(check_complete(table, {.hyper = true}).message(),
            "backend reference lacks the ops hyper.mix, hyper.merge, hyper.spread, hyper.mean");
}

// A backend that cannot roll rows back cannot verify drafts, and is refused before it tries.
TEST(OpTable, DraftsNeedTheCommits) {
  OpTable table = reference_op_table();
  table.convolution.commit = nullptr;
  table.gated_delta.commit = nullptr;
  table.channel_delta.commit = nullptr;
  EXPECT_TRUE(check_complete(table, {.channel_delta = true}).is_ok());
  EXPECT_EQ(check_complete(table, {.rollback = true}).message(),
            "backend reference lacks the ops convolution.commit, gated_delta.commit");
  EXPECT_NE(check_complete(table, OpNeeds::all()).message().find("channel_delta.commit"),
            std::string::npos);
}

}  // namespace
}  // namespace motley
