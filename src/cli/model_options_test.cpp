#include "cli/model_options.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(MemorySize, ReadsSizesAndShares) {
  EXPECT_EQ(parse_memory_size("8GiB")->bytes, int64_t{8} << 30);
  EXPECT_EQ(parse_memory_size("1.5GB")->bytes, 1'500'000'000);
  EXPECT_EQ(parse_memory_size("4096")->bytes, 4096);
  EXPECT_DOUBLE_EQ(parse_memory_size("60%")->share, 0.6);
  EXPECT_EQ(parse_memory_size("25%")->of(1000), 250);
  for (const char* bad : {"", "-1", "0", "0%", "101%", "8 GiB", "GiB", "8gibi", "nan", "inf",
                          "1e30", "99999999TB", "8GiB ", "%"}) {
    EXPECT_FALSE(parse_memory_size(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace motley
