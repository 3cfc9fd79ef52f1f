#include "base/fault_points.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(FaultPoints, TheNthVisitFailsOnce) {
  FaultPoints faults;
  EXPECT_TRUE(faults.visit("io.read").is_ok());
  faults.arm("io.read", 2, io_error("injected"));
  EXPECT_TRUE(faults.visit("io.read").is_ok());
  EXPECT_TRUE(faults.visit("io.write").is_ok());
  EXPECT_EQ(faults.visit("io.read").message(), "injected");
  EXPECT_TRUE(faults.visit("io.read").is_ok());
}

TEST(FaultPoints, ClearDisarms) {
  FaultPoints faults;
  faults.arm("alloc", 1, resource_exhausted("injected"));
  faults.clear();
  EXPECT_TRUE(faults.visit("alloc").is_ok());
}

}  // namespace
}  // namespace motley
