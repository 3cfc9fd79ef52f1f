#include "io/checkpoint.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/owned_context.h"
#include "io/safetensors_writer.h"
#include "support/test_files.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kIndex = "model.safetensors.index.json";

class CheckpointTest : public ::testing::Test {
 protected:
  // One U8 tensor per name, each holding `value`.
  void write_shard(const std::string& file, const std::vector<std::string>& names,
                   uint8_t value = 1) {
    std::vector<TensorDeclaration> tensors;
    for (const std::string& name : names) tensors.push_back({name, DType::kU8, {2}});
    auto writer = SafetensorsWriter::create(context_.faults(), directory_ / file, tensors);
    ASSERT_TRUE(writer.is_ok());
    const std::array<uint8_t, 2> bytes{value, value};
    for (size_t i = 0; i < names.size(); ++i) {
      ASSERT_TRUE(writer->write_all(i, std::span<const uint8_t>(bytes)).is_ok());
    }
    ASSERT_TRUE(writer->finish().is_ok());
  }
  void write_index(const std::map<std::string, std::string>& shards) {
    ASSERT_TRUE(write_safetensors_index(context_.faults(), directory_.path(), shards, 4).is_ok());
  }
  Result<Checkpoint> open() { return Checkpoint::open(context_.get(), directory_.path()); }
  std::string error() {
    const auto checkpoint = open();
    EXPECT_FALSE(checkpoint.is_ok());
    const std::string message = checkpoint.status().message();
    EXPECT_THAT(message, ::testing::StartsWith(directory_.path()));
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }

  TemporaryDirectory directory_;
  OwnedContext context_{test_threads()};
};

TEST_F(CheckpointTest, SingleFile) {
  write_shard("model.safetensors", {"b", "a"}, 7);
  auto checkpoint = open();
  ASSERT_TRUE(checkpoint.is_ok()) << checkpoint.status().message();
  const Checkpoint moved = std::move(*checkpoint);
  ASSERT_EQ(moved.tensors().size(), 2u);
  EXPECT_EQ(moved.tensors()[0].name, "a");
  EXPECT_EQ(moved.find_tensor("b")->bytes[1], std::byte{7});
  EXPECT_EQ(moved.find("b")->shape, std::vector<int64_t>{2});
  EXPECT_EQ(moved.find("c"), nullptr);
  EXPECT_EQ(moved.data_bytes(), 4);
  EXPECT_TRUE(moved.check_unchanged().is_ok());
}

TEST_F(CheckpointTest, Shards) {
  write_shard("x.safetensors", {"a", "c"}, 1);
  write_shard("y.safetensors", {"b"}, 2);
  write_shard("unrelated.safetensors", {"a"}, 3);
  write_index({{"a", "x.safetensors"}, {"b", "y.safetensors"}, {"c", "x.safetensors"}});
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.is_ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->shard_count(), 2u);
  EXPECT_EQ(checkpoint->find_tensor("a")->bytes[0], std::byte{1});
  EXPECT_EQ(checkpoint->find_tensor("b")->bytes[0], std::byte{2});
}

TEST_F(CheckpointTest, IndexAndShardsMustAgree) {
  EXPECT_THAT(error(), HasSubstr("holds neither model.safetensors nor"));
  write_shard("x.safetensors", {"a"});
  write_index({{"a", "x.safetensors"}, {"b", "x.safetensors"}});
  EXPECT_THAT(error(), HasSubstr("tensor 'b' is not in x.safetensors"));
  write_index({{"a", "x.safetensors"}, {"b", "y.safetensors"}});
  EXPECT_THAT(error(), HasSubstr("/y.safetensors: no such file"));
  write_shard("y.safetensors", {"b", "a"});
  EXPECT_THAT(error(), HasSubstr("tensor 'a' is also in"));
  write_shard("y.safetensors", {"b", "stray"});
  EXPECT_THAT(error(), HasSubstr("y.safetensors: tensor 'stray' is not listed in"));
  write_shard("y.safetensors", {"b", "0stray"});
  EXPECT_THAT(error(), HasSubstr("tensor '0stray' is not listed in"));
  write_shard("y.safetensors", {"b"});
  write_index({{"b", "x.safetensors"}, {"a", "y.safetensors"}});
  EXPECT_THAT(error(), HasSubstr("tensor 'a' is in"));
  write_index({{"a", "x.safetensors"}, {"b", "y.safetensors"}});
  EXPECT_TRUE(open().is_ok());
  write_shard("model.safetensors", {"a"});
  EXPECT_THAT(error(), HasSubstr("an index that does not name it"));
}

TEST_F(CheckpointTest, HostileIndexes) {
  write_shard("x.safetensors", {"a"});
  const TemporaryDirectory outside;
  std::filesystem::copy(directory_ / "x.safetensors", outside / "x.safetensors");
  std::filesystem::create_symlink(outside / "x.safetensors", directory_ / "link.safetensors");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"weight_map":{"a":"../x.safetensors"}})", "weight_map 'a': \"../x.safetensors\" is not"},
      {R"({"weight_map":{"a":"/etc/x.safetensors"}})", "weight_map 'a'"},
      {R"({"weight_map":{"a":"link.safetensors"}})", "a symbolic link, and none is followed"},
      {R"({"weight_map":{"a":"config.json"}})", "weight_map 'a'"},
      {R"({"weight_map":{"a":7}})", "weight_map 'a'"},
      {R"({"weight_map":{"a":{}}})", "must map names to file names"},
      {R"({"weight_map":["a"]})", "must map names to file names"},
      {R"({"weight_map":{}})", "weight_map is empty"},
      {R"({"metadata":{}})", "has no weight_map"},
      {R"([])", "must map names"},
      {R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})", "duplicate name 'a'"},
      {R"({"weight_map":{"a":"x.safetensors"},"weight_map":{}})", "duplicate name 'weight_map'"},
      {"{\"weight_map\":" + std::string(5000, '['), "must map names"},
      {"{\"m\":" + std::string(5000, '['), "nested deeper than 8"},
      {R"({"weight_map":{"a":"x.safetensors"})", "not valid JSON"}};
  for (const auto& [text, message] : cases) {
    directory_.write(kIndex, text);
    EXPECT_THAT(error(), HasSubstr(message)) << text.substr(0, 100);
  }
}

TEST_F(CheckpointTest, TruncatedShardIsNamed) {
  write_shard("model.safetensors", {"a", "b"});
  const std::string path = directory_ / "model.safetensors";
  const auto whole = std::filesystem::file_size(path);
  for (const uintmax_t size :
       {whole - 1, whole - 4, uintmax_t{60}, uintmax_t{8}, uintmax_t{7}, uintmax_t{1}}) {
    std::filesystem::resize_file(path, size);
    EXPECT_THAT(error(), HasSubstr("/model.safetensors: ")) << size;
  }
  std::filesystem::resize_file(path, 0);
  EXPECT_THAT(error(), HasSubstr("/model.safetensors: is empty"));
}

TEST_F(CheckpointTest, EveryFaultIsAnError) {
  write_shard("x.safetensors", {"a"});
  write_index({{"a", "x.safetensors"}});
  for (const char* point : {"io.open", "io.read", "io.map"}) {
    int failures = 0;
    for (int nth = 1; nth < 10; ++nth) {
      context_.faults().clear();
      context_.faults().arm(point, nth, io_error("injected"));
      const auto checkpoint = open();
      if (checkpoint.is_ok()) break;
      EXPECT_THAT(checkpoint.status().message(), HasSubstr("injected"));
      ++failures;
    }
    EXPECT_GE(failures, 1) << point;
    EXPECT_LT(failures, 9) << point;
  }
  context_.faults().clear();
}

}  // namespace
}  // namespace motley
