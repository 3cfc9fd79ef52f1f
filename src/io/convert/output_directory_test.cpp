#include "io/convert/output_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/test_files.h"

namespace motley {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(OutputDirectory, KeepsWhatIsFinished) {
  const TemporaryDirectory parent;
  FaultPoints faults;
  {
    Result<OutputDirectory> output = OutputDirectory::create(faults, parent / "a/b/");
    ASSERT_TRUE(output.is_ok()) << output.status().message();
    ASSERT_TRUE(output->write("x", "text").is_ok());
    EXPECT_TRUE(fs::exists(parent / "a/b/.motley-lock"));
    ASSERT_TRUE(output->finish().is_ok());
  }
  EXPECT_EQ(fs::file_size(parent / "a/b/x"), 4u);
  EXPECT_FALSE(fs::exists(parent / "a/b/.motley-lock"));
}

TEST(OutputDirectory, RemovesWhatItMadeAndNothingElse) {
  const TemporaryDirectory parent;
  FaultPoints faults;
  fs::create_directory(parent / "old");
  for (const char* name : {"old", "old/new/deep"}) {
    Result<OutputDirectory> output = OutputDirectory::create(faults, parent / name);
    ASSERT_TRUE(output.is_ok()) << output.status().message();
    ASSERT_TRUE(output->write("x", "text").is_ok());
    output->add("never written");
  }
  EXPECT_TRUE(fs::is_empty(parent / "old"));

  {
    const auto output = OutputDirectory::create(faults, parent / "new/deep");
    parent.write("new/foreign", "of somebody else");
  }
  EXPECT_TRUE(fs::exists(parent / "new/foreign"));
  EXPECT_FALSE(fs::exists(parent / "new/deep"));
}

TEST(OutputDirectory, RefusesWhatIsNotEmptyAndLeavesIt) {
  const TemporaryDirectory parent;
  FaultPoints faults;
  parent.write("precious", "x");
  const auto error = [&](const std::string& path) {
    return OutputDirectory::create(faults, path).status().message();
  };
  EXPECT_THAT(error(parent.path()), HasSubstr("the directory is not empty"));
  EXPECT_THAT(error(parent / "precious"), HasSubstr("is not a directory"));
  EXPECT_THAT(error(parent / "precious/below"), HasSubstr("cannot create"));
  EXPECT_TRUE(fs::exists(parent / "precious"));
  EXPECT_FALSE(fs::exists(parent / ".motley-lock"));
}

TEST(OutputDirectory, OneWriterAtATime) {
  const TemporaryDirectory parent;
  FaultPoints faults;
  {
    const auto first = OutputDirectory::create(faults, parent / "a");
    ASSERT_TRUE(first.is_ok());
    EXPECT_THAT(OutputDirectory::create(faults, parent / "a").status().message(),
                HasSubstr("another motley is writing there"));
    EXPECT_TRUE(fs::exists(parent / "a/.motley-lock")) << "the second took the lock of the first";
  }
  EXPECT_TRUE(OutputDirectory::create(faults, parent / "a").is_ok());
}

}  // namespace
}  // namespace motley
