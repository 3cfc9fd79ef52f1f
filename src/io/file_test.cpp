#include "io/file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "io/file_writer.h"
#include "support/test_files.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

TEST(File, ReadsRangesAndRefusesMore) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  directory.write("a", "0123456789");
  const auto file = File::open(faults, directory / "a");
  ASSERT_TRUE(file.is_ok());
  EXPECT_EQ(file->size(), 10);
  std::string text(4, ' ');
  ASSERT_TRUE(file->read_exact(3, std::as_writable_bytes(std::span(text))).is_ok());
  EXPECT_EQ(text, "3456");
  const Status beyond = file->read_exact(8, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(beyond.code(), StatusCode::kCorrupt);
  EXPECT_THAT(beyond.message(), HasSubstr("/a: ends at byte 10"));
  EXPECT_EQ(File::open(faults, directory / "b").status().code(), StatusCode::kNotFound);
}

TEST(File, NoticesChanges) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  directory.write("a", "0123456789");
  const auto file = File::open(faults, directory / "a");
  ASSERT_TRUE(file.is_ok());
  EXPECT_TRUE(file->check_unchanged().is_ok());
  std::filesystem::resize_file(directory / "a", 5);
  EXPECT_THAT(file->check_unchanged().message(), HasSubstr("changed while it was being read"));
}

TEST(File, RefusesWhatIsNotAFile) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(File::open(faults, directory / "pipe").status().message(),
              HasSubstr("is not a regular file"));
  EXPECT_FALSE(File::open(faults, directory.path()).is_ok());
}

TEST(PlainFileName, NoWayOut) {
  EXPECT_TRUE(is_plain_file_name("model-00001-of-00002.safetensors"));
  EXPECT_TRUE(is_plain_file_name("..."));
  for (const std::string_view name :
       {std::string_view(""), std::string_view("."), std::string_view(".."), std::string_view("/a"),
        std::string_view("../a"), std::string_view("a/b"), std::string_view("a\0b", 3)}) {
    EXPECT_FALSE(is_plain_file_name(name)) << name;
  }
  EXPECT_FALSE(is_plain_file_name(std::string(256, 'a')));
}

TEST(ModelDirectory, OpensOnlyFilesInside) {
  const TemporaryDirectory outside;
  outside.write("secret", "x");
  const TemporaryDirectory inside;
  inside.write("a", "text");
  std::filesystem::create_symlink(outside / "secret", inside / "absolute");
  std::filesystem::create_symlink("a", inside / "sibling");
  std::filesystem::create_symlink("loop", inside / "loop");
  FaultPoints faults;
  const auto directory = ModelDirectory::open(faults, inside.path());
  ASSERT_TRUE(directory.is_ok());
  EXPECT_EQ(*directory->read_text("a", 4), "text");
  EXPECT_THAT(directory->read_text("a", 3).status().message(), HasSubstr("exceed the limit of 3"));
  EXPECT_TRUE(directory->contains("absolute"));
  EXPECT_FALSE(directory->contains("../a"));
  EXPECT_THAT(directory->open_file("../a").status().message(), HasSubstr("not a plain file name"));
  for (const char* name : {"absolute", "sibling", "loop"}) {
    EXPECT_THAT(directory->open_file(name).status().message(),
                HasSubstr("a symbolic link, and none is followed"));
  }
  EXPECT_EQ(directory->open_file("none").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(ModelDirectory::open(faults, inside / "a").status().message(),
              HasSubstr("is not a directory"));
}

TEST(ModelDirectory, FollowsTheCacheLayoutOnce) {
  const TemporaryDirectory cache;
  const std::string snapshot = cache / "models--x/snapshots/0123";
  const std::string blobs = cache / "models--x/blobs";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(blobs);
  cache.write("models--x/blobs/abcd", "weights");
  cache.write("models--x/elsewhere", "no");
  std::filesystem::create_symlink("../../blobs/abcd", snapshot + "/model.safetensors");
  std::filesystem::create_symlink("../../elsewhere", snapshot + "/other");
  std::filesystem::create_symlink("../../blobs/../elsewhere", snapshot + "/dots");
  std::filesystem::create_symlink("../elsewhere", blobs + "/link");
  std::filesystem::create_symlink("../../blobs/link", snapshot + "/twice");
  FaultPoints faults;
  const auto directory = ModelDirectory::open(faults, snapshot);
  ASSERT_TRUE(directory.is_ok());
  EXPECT_EQ(*directory->read_text("model.safetensors", 100), "weights");
  for (const char* name : {"other", "dots", "twice"}) {
    EXPECT_THAT(directory->open_file(name).status().message(), HasSubstr("hard link")) << name;
  }
  // The name exists, so a blob that is missing does not make the file absent.
  std::filesystem::create_symlink("../../blobs/gone", snapshot + "/dangling");
  const Status dangling = directory->open_file("dangling").status();
  EXPECT_EQ(dangling.code(), StatusCode::kCorrupt);
  EXPECT_THAT(dangling.message(), HasSubstr("a link to ../../blobs/gone, which is missing"));
  // The same link outside a directory called snapshots is no cache.
  const std::string fake = cache / "models--x/else/0123";
  std::filesystem::create_directories(fake);
  std::filesystem::create_symlink("../../blobs/abcd", fake + "/model.safetensors");
  const auto other = ModelDirectory::open(faults, fake);
  ASSERT_TRUE(other.is_ok());
  EXPECT_FALSE(other->open_file("model.safetensors").is_ok());
}

TEST(File, FaultPointsFail) {
  const TemporaryDirectory directory;
  directory.write("a", "0123");
  FaultPoints faults;
  faults.arm("io.open", 1, io_error("no more descriptors"));
  EXPECT_THAT(File::open(faults, directory / "a").status().message(), HasSubstr("no more"));
  const auto file = File::open(faults, directory / "a");
  ASSERT_TRUE(file.is_ok());
  faults.arm("io.read", 1, io_error("bad sector"));
  std::string text(4, ' ');
  EXPECT_EQ(file->read_exact(0, std::as_writable_bytes(std::span(text))).message(),
            (directory / "a") + ": bad sector");
}

TEST(FileWriter, PublishesWholeOrNothing) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  const std::string text = "hello";
  ASSERT_TRUE(write_file(faults, directory / "a", std::as_bytes(std::span(text))).is_ok());
  faults.arm("io.publish", 1, io_error("power cut"));
  const std::string other = "other";
  EXPECT_FALSE(write_file(faults, directory / "a", std::as_bytes(std::span(other))).is_ok());
  const auto opened = ModelDirectory::open(faults, directory.path());
  EXPECT_EQ(*opened->read_text("a", 100), "hello");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
  EXPECT_FALSE(write_file(faults, directory / "no/such/dir", {}).is_ok());
}

}  // namespace
}  // namespace motley
