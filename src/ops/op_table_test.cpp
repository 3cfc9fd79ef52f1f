#include "ops/op_table.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(OpTable, MissingOpsAreNamed) {
  OpTable table;
  table.name = "empty";
  const Status status = check_complete(table);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("backend empty lacks the ops linear, embed"), std::string::npos);
  EXPECT_NE(status.message().find("combine"), std::string::npos);
}

}  // namespace
}  // namespace motley
