#include "base/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Version, NumbersAreThree) {
  EXPECT_THAT(std::string(build_info().version),
              ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(Version, NothingIsEmpty) {
  const BuildInfo info = build_info();
  EXPECT_FALSE(info.revision.empty());
  EXPECT_FALSE(info.compiler.empty());
  EXPECT_FALSE(info.build_type.empty());
  EXPECT_FALSE(info.processor.empty());
  for (const std::string_view component : info.components) EXPECT_FALSE(component.empty());
}

TEST(Version, TextNamesVersionRevisionAndEveryComponent) {
  const BuildInfo info = build_info();
  const std::string text = version_text();
  EXPECT_THAT(text, StartsWith("motley " + std::string(info.version) + " (" +
                               std::string(info.revision) + ")\n"));
  EXPECT_THAT(text, HasSubstr(std::string(info.compiler)));
  for (const std::string_view component : info.components) {
    EXPECT_THAT(text, HasSubstr(std::string(component)));
  }
}

}  // namespace
}  // namespace motley
