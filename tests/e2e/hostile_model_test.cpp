// Headers and configurations that somebody made up to do harm: one line, exit 1, no crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "e2e/process.h"

namespace motley::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const std::string kTensor = "language_model.model.layers.0.linear_attn.in_proj_qkv.scales";

class HostileModel : public ::testing::Test {
 protected:
  void SetUp() override { fs::copy(pocket_model(), folder_.path() + "/m"); }

  std::string path(const std::string& name) const { return folder_.path() + "/m/" + name; }

  void edit_json(const std::string& name, const std::function<void(Json&)>& edit) {
    Json json = Json::parse(read_file(path(name)));
    edit(json);
    folder_.write("m/" + name, json.dump());
  }

  // Rewrites the header; the data follows it as before.
  void edit_header(const std::function<void(Json&)>& edit) {
    const std::string bytes = read_file(path("model.safetensors"));
    uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof size);
    Json header = Json::parse(bytes.substr(8, size));
    edit(header);
    const std::string text = header.dump();
    size_t new_size = text.size();
    std::string result(sizeof new_size, '\0');
    std::memcpy(result.data(), &new_size, sizeof new_size);
    folder_.write("m/model.safetensors", result + text + bytes.substr(8 + size));
  }

  // What `motley run` answers.
  std::string error() {
    const Outcome outcome = run({"run", folder_.path() + "/m", "-p", "Hello", "-n", "2"});
    EXPECT_EQ(outcome.exit, 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_THAT(outcome.err, ::testing::StartsWith("motley: "));
    EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos);
    return outcome.err;
  }

  TemporaryFolder folder_;
};

TEST_F(HostileModel, EmptyShard) {
  folder_.write("m/model.safetensors", "");
  EXPECT_THAT(error(), HasSubstr("model.safetensors"));
}

TEST_F(HostileModel, HeaderLongerThanTheFile) {
  std::string bytes = read_file(path("model.safetensors"));
  bytes[6] = '\x7f';
  folder_.write("m/model.safetensors", bytes);
  EXPECT_THAT(error(), HasSubstr("model.safetensors"));
}

TEST_F(HostileModel, ShapeMismatch) {
  const std::string norm = "language_model.model.layers.0.input_layernorm.weight";
  edit_header([&](Json& header) { header[norm]["shape"] = {2, 128}; });
  const std::string line = error();
  EXPECT_THAT(line, HasSubstr(norm));
  EXPECT_THAT(line, HasSubstr("[2, 128]"));
}

TEST_F(HostileModel, ShapeWhoseProductOverflows) {
  edit_header([](Json& header) { header[kTensor]["shape"] = {4294967296, 4294967296, 4}; });
  EXPECT_THAT(error(), HasSubstr(kTensor));
}

TEST_F(HostileModel, OffsetOfTwoToThe63) {
  edit_header([](Json& header) {
    header[kTensor]["data_offsets"] = {9223372036854775808ULL, 9223372036854779904ULL};
  });
  EXPECT_THAT(error(), HasSubstr("model.safetensors"));
}

TEST_F(HostileModel, OverlappingTensors) {
  edit_header([](Json& header) { header[kTensor]["data_offsets"] = {0, 4096}; });
  EXPECT_THAT(error(), HasSubstr("model.safetensors"));
}

TEST_F(HostileModel, TensorNobodyAskedFor) {
  edit_header([](Json& header) {
    header["language_model.model.layers.0.linear_attn.surprise\n\x1b[2J"] = header[kTensor];
    header.erase(kTensor);
  });
  EXPECT_THAT(error(), HasSubstr("layers.0.linear_attn"));
}

TEST_F(HostileModel, AbsurdSizes) {
  edit_json("config.json",
            [](Json& config) { config["text_config"]["hidden_size"] = 4611686018427387904; });
  EXPECT_THAT(error(), HasSubstr("hidden_size"));
}

TEST_F(HostileModel, ConfigOfBracketsAlone) {
  folder_.write("m/config.json", std::string(100'000, '['));
  EXPECT_THAT(error(), HasSubstr("config.json"));
}

TEST_F(HostileModel, TemplateThatDoesNotParse) {
  // Raw text needs no template, so the model loads; the chat is refused with file and line.
  folder_.write("m/chat_template.jinja", "line one\n{% if %}");
  EXPECT_THAT(error(), HasSubstr("line 2"));
}

TEST_F(HostileModel, UnknownTokenizerModel) {
  edit_json("tokenizer.json", [](Json& json) { json["model"]["type"] = "Mystery"; });
  EXPECT_THAT(error(), HasSubstr("tokenizer.json"));
}

TEST_F(HostileModel, AFolderInPlaceOfAFile) {
  fs::remove(path("config.json"));
  fs::create_directory(path("config.json"));
  EXPECT_THAT(error(), HasSubstr("config.json"));
}

}  // namespace
}  // namespace motley::e2e
