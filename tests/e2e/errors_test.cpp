// What goes wrong is one line that names the thing, and the right exit status.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "e2e/process.h"

namespace motley::e2e {
namespace {

void expect_error(const Outcome& outcome, int exit, const std::string& part) {
  EXPECT_EQ(outcome.exit, exit) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("motley: ", 0), 0U) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
}

TEST(Errors, WrongUsageIsExitTwo) {
  expect_error(run({"rnu"}), 2, "did you mean run?");
  expect_error(run({"run", "--tmep", "1", "-p", "x"}), 2, "did you mean --temp?");
  expect_error(run({"run", "--bits", "4", "-p", "x"}), 2, "it belongs to quantize");
  expect_error(run({"run", "-p", "x", "-f", "y"}), 2, "not both");
  expect_error(run({"run", "-p", "x", "--raw", "--think", "on"}), 2, "no effect with --raw");
  expect_error(run({"run", "-p", "x", "--logprobs", "2"}), 2, "without --json");
  expect_error(run({"run", "-p", "x", "--threads", "0"}), 2, "--threads is 0");
  expect_error(run({"tokenize", "--threads", "2", "--text", "x"}), 2, "--threads is not used by");
  expect_error(run({"bench"}), 2, "bench model");
  expect_error(run({"run", "-p", "x", "--logit-bias", "5"}), 2, "--logit-bias needs ID=BIAS");
  expect_error(run({"run", "-p", "x", "--stop", ""}), 2, "--stop needs a text");
}

TEST(Errors, VariablesAreChecked) {
  expect_error(run({"run", "-p", "x"}, "", {{"MOTLEY_TREADS", "2"}}), 2,
               "MOTLEY_TREADS is not known; did you mean MOTLEY_THREADS?");
  expect_error(run({"run", "-p", "x"}, "", {{"MOTLEY_THREADS", "two"}}), 2, "MOTLEY_THREADS");
}

TEST(Errors, AModelThatCannotBeReadIsNamed) {
  expect_error(run({"run", "/no/such/model", "-p", "x"}), 1, "/no/such/model");
  const std::string missing = "/no/such/model: no such directory";
  for (const char* verb : {"inspect", "verify", "bench model", "tokenize", "quantize"}) {
    std::vector<std::string> words = {verb, "/no/such/model"};
    if (std::string(verb) == "bench model") words = {"bench", "model", "/no/such/model"};
    if (std::string(verb) == "quantize") words.push_back("/tmp/no-such-output");
    expect_error(run(words), 1, missing);
  }
  expect_error(run({"template", "-", "/no/such/model"}, "[]"), 1, missing);
  expect_error(run({"run", "/no/such/model", "-p", "x"}), 1, missing);
}

// Bytes of the pocket model, to be broken in a copy.
class BrokenModel : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                             "tokenizer_config.json", "chat_template.jinja"}) {
      folder.write(name, read_file(pocket_model() + "/" + name));
    }
    weights = read_file(pocket_model() + "/model.safetensors");
    write_weights();
  }
  void write_weights() { folder.write("model.safetensors", weights); }
  void change_file(const std::string& name, const std::string& from, const std::string& to) {
    std::string text = read_file(folder.path() + "/" + name);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    folder.write(name, text.replace(at, from.size(), to));
  }
  // Replaces text of the header and corrects the header's length.
  void change_header(const std::string& from, const std::string& to) {
    const size_t at = weights.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    weights.replace(at, from.size(), to);
    uint64_t length = 0;
    std::memcpy(&length, weights.data(), sizeof length);
    length += to.size() - from.size();
    std::memcpy(weights.data(), &length, sizeof length);
    write_weights();
  }
  Outcome load() { return run({"run", folder.path(), "-p", "x", "-n", "1"}); }

  TemporaryFolder folder;
  std::string weights;
};

TEST_F(BrokenModel, TheWholeCopyRuns) {
  EXPECT_EQ(load().exit, 0);
}

TEST_F(BrokenModel, ATruncatedFile) {
  weights.resize(weights.size() - 1000);
  write_weights();
  expect_error(load(), 1, "model.safetensors");
}

TEST_F(BrokenModel, AHugeOffset) {
  const size_t begin = weights.find("\"data_offsets\":[") + 16;
  const std::string first = weights.substr(begin, weights.find(']', begin) - begin);
  change_header(first, "0,9223372036854775808");
  expect_error(load(), 1, "model.safetensors");
}

TEST_F(BrokenModel, AMissingTensor) {
  change_header(".embed_tokens.weight\"", ".embed_tokenz.weight\"");
  expect_error(load(), 1, "embed_token");
}

TEST_F(BrokenModel, AnotherShape) {
  change_file("config.json", "\"vocab_size\": 6144", "\"vocab_size\": 6145");
  expect_error(load(), 1, "614");
}

TEST_F(BrokenModel, AnUnknownFamily) {
  change_file("config.json", "\"qwen3_5_moe\"", "\"unheard_of\"");
  expect_error(load(), 1, "unheard_of");
  remove((folder.path() + "/tokenizer.json").c_str());
  expect_error(load(), 1, "unheard_of");
}

TEST_F(BrokenModel, ATemplateThatLoops) {
  folder.write("chat_template.jinja",
               "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
  expect_error(load(), 1, "template");
}

TEST_F(BrokenModel, ATokenizerOfAnotherModel) {
  folder.write("tokenizer.json", "{}");
  expect_error(load(), 1, "tokenizer.json");
}

TEST(Errors, RefusedRequestsSayWhy) {
  expect_error(run({"run", pocket_model(), "-p", "x", "--think", "on"}), 1, "no switch");
  expect_error(run({"run", pocket_model(), "-p", "x", "--context", "999999999"}), 1, "999999999");
  expect_error(run({"run", pocket_model(), "--raw", "-p", ""}), 1, "the prompt is empty");
  expect_error(run({"run", pocket_model(), "-f", "/no/such/file"}), 1, "/no/such/file");
  const TemporaryFolder folder;
  expect_error(run({"template", folder.write("m.json", "{"), pocket_model()}), 1, "m.json");
  expect_error(run({"tokenize", pocket_model(), "--decode"}, "1 x"), 1, "\"x\" is no token id");
}

TEST(Errors, AnOverlongPromptStatesTheCounts) {
  const Outcome outcome =
      run({"run", pocket_model(), "-f", "-", "--context", "8"}, std::string(400, 'x'));
  expect_error(outcome, 1, "the context holds 8");
}

}  // namespace
}  // namespace motley::e2e
