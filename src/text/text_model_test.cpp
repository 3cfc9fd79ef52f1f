#include "text/text_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/test_files.h"
#include "text/test_tokenizer.h"

namespace motley {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string load_error(const std::string& path) {
  return load_text_model(path).status().message();
}

TEST(TextModel, TheDirectoryIsNamedBeforeAFileInIt) {
  const TemporaryDirectory directory;
  EXPECT_EQ(load_error(directory / "none"), directory / "none" + ": no such directory");
  directory.write("file", "x");
  EXPECT_THAT(load_error(directory / "file"), HasSubstr("file: is not a directory"));
  EXPECT_EQ(load_error(directory.path()), directory / "tokenizer.json" + ": no such file");
}

TEST(TextModel, AnOddTokenizerFileIsRefused) {
  const TemporaryDirectory directory;
  const std::string path = directory / "tokenizer.json";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(load_error(directory.path()), AllOf(HasSubstr(path), HasSubstr("regular file")));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_THAT(load_error(directory.path()), AllOf(HasSubstr(path), HasSubstr("symbolic link")));
  std::filesystem::remove(path);
  directory.write("tokenizer.json", "{}");
  std::filesystem::resize_file(path, uintmax_t{1} << 40);
  EXPECT_THAT(load_error(directory.path()), AllOf(HasSubstr(path), HasSubstr("exceed the limit")));
}

TEST(TextModel, TheCacheLayoutWorks) {
  const TemporaryDirectory cache;
  const std::string snapshot = cache / "models--x/snapshots/0123";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(cache / "models--x/blobs");
  cache.write("models--x/blobs/aa", test_tokenizer_json().dump());
  cache.write("models--x/blobs/bb", "{{ messages[0].content }}");
  std::filesystem::create_symlink("../../blobs/aa", snapshot + "/tokenizer.json");
  std::filesystem::create_symlink("../../blobs/bb", snapshot + "/chat_template.jinja");
  const Result<TextModel> model = load_text_model(snapshot);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  EXPECT_TRUE(model->chat_template.has_value());
}

TEST(TextModel, ErrorsOfTheTemplateNameItsFile) {
  const TemporaryDirectory directory;
  directory.write("tokenizer.json", test_tokenizer_json().dump());
  const auto messages = nlohmann::ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");
  ChatRequest request;
  request.messages = &messages;
  const auto render_error = [&] {
    const Result<TextModel> model = load_text_model(directory.path());
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    return render_chat(*model, request).status().message();
  };
  directory.write("tokenizer_config.json", R"({"chat_template": "{{ 1 / 0 }}"})");
  EXPECT_THAT(render_error(), HasSubstr(directory / "tokenizer_config.json: chat template: "));
  directory.write("chat_template.jinja", "{{ raise_exception('no') }}");
  EXPECT_THAT(render_error(), HasSubstr(directory / "chat_template.jinja: chat template: "));
  directory.write("chat_template.jinja", "{% if %}");
  EXPECT_THAT(render_error(), HasSubstr(directory / "chat_template.jinja: chat template: "));
}

// Nested repeats that cannot match take exponential time, which the regex's limit ends.
TEST(TextModel, ErrorsOfTheRegexNameTheTokenizer) {
  const TemporaryDirectory directory;
  nlohmann::json json = test_tokenizer_json();
  json["pre_tokenizer"] = nlohmann::json::parse(
      R"({"type": "Sequence", "pretokenizers": [
          {"type": "Split", "pattern": {"Regex": "(?:a|aa)+\\d"}, "behavior": "Isolated",
           "invert": false},
          {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
           "use_regex": false}]})");
  directory.write("tokenizer.json", json.dump());
  const Result<TextModel> model = load_text_model(directory.path());
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  EXPECT_TRUE(model->encode("aa1").is_ok());
  const Status hard = model->encode(std::string(5000, 'a')).status();
  EXPECT_THAT(hard.message(), HasSubstr(directory / "tokenizer.json: "));
}

}  // namespace
}  // namespace motley
