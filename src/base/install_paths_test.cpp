#include "base/install_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(InstallPaths, InstalledProgramsLookInTheirPrefixFirst) {
  EXPECT_EQ(shared_folders("/opt/m/bin/motley").front(), "/opt/m/share/motley");
}

TEST(InstallPaths, BuildTreesFindTheRepository) {
  EXPECT_THAT(shared_folders("/r/build/release/motley"), ::testing::Contains("/r"));
}

TEST(InstallPaths, MissingFilesAreNamedWithThePlaces) {
  const auto found = find_shared_file("no/such/thing");
  EXPECT_EQ(found.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(found.status().message(), ::testing::HasSubstr("share/motley/no/such/thing"));
}

}  // namespace
}  // namespace motley
