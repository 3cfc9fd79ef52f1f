// Every verb on the pocket model, in pipes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "e2e/process.h"

namespace motley::e2e {
namespace {

using Json = nlohmann::json;

const char* const kQuestion = "Who are you?";

Json json_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  const Json json = Json::parse(outcome.out, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << outcome.out;
  return json;
}

TEST(Run, OnlyGeneratedTextIsOnStandardOutput) {
  const Outcome plain = run({"run", pocket_model(), "-p", kQuestion, "-n", "24"});
  ASSERT_EQ(plain.exit, 0) << plain.err;
  const Json json = json_of(run({"run", pocket_model(), "-p", kQuestion, "-n", "24", "--json"}));
  EXPECT_EQ(plain.out, json["text"].get<std::string>());
  EXPECT_FALSE(plain.out.empty());
  EXPECT_EQ(plain.out.find('\x1b'), std::string::npos);
  EXPECT_NE(plain.err.find("prefill "), std::string::npos);
  EXPECT_NE(plain.err.find("; decode "), std::string::npos);
  EXPECT_NE(plain.err.find("fast on cpu/"), std::string::npos);
}

TEST(Run, NoModelMeansThePocketModel) {
  const Outcome outcome = run({"run", "-p", kQuestion, "-n", "8"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(outcome.out, run({"run", pocket_model(), "-p", kQuestion, "-n", "8"}).out);
  EXPECT_EQ(run({"run", "-p", "x"}, "", {{"MOTLEY_POCKET", "/no/such/model"}}).exit, 1);
}

TEST(Run, PromptFromOptionFileAndStreamAreTheSame) {
  const TemporaryFolder folder;
  const std::string path = folder.write("prompt.txt", kQuestion);
  const std::string expected = run({"run", pocket_model(), "-p", kQuestion, "-n", "12"}).out;
  EXPECT_EQ(run({"run", pocket_model(), "-f", path, "-n", "12"}).out, expected);
  EXPECT_EQ(run({"run", pocket_model(), "-f", "-", "-n", "12"}, kQuestion).out, expected);
  EXPECT_EQ(run({"run", pocket_model(), "-n", "12"}, kQuestion).out, expected);
  EXPECT_EQ(run({"run", pocket_model()}, kQuestion, {{"MOTLEY_MAX_TOKENS", "12"}}).out, expected);
}

// -f is byte exact: a trailing newline is part of the prompt.
TEST(Run, RawTextIsTakenAsItStands) {
  const auto prompt_tokens = [](const std::string& text) {
    return json_of(run({"run", pocket_model(), "--raw", "-n", "1", "--json", "-f", "-"},
                       text))["prompt_tokens"]
        .get<int>();
  };
  EXPECT_EQ(prompt_tokens("<|im_start|>"), 1);
  EXPECT_EQ(prompt_tokens("<|im_start|>\n"), 2);
}

TEST(Run, PrefillChunksAreKeptExactly) {
  const auto run_chunked = [](const std::string& chunk) {
    return json_of(run(
        {"run", pocket_model(), "-p", kQuestion, "-n", "16", "--json", "--prefill-chunk", chunk}));
  };
  const Json whole = run_chunked("512");
  const Json sevens = run_chunked("7");
  const int tokens = whole["prompt_tokens"];
  EXPECT_EQ(whole["prefill_chunks"], 1);
  EXPECT_EQ(sevens["prefill_chunks"], (tokens + 6) / 7);
  EXPECT_EQ(sevens["tokens"], whole["tokens"]);
}

TEST(Run, SeedsMakeSampledRunsRepeatable) {
  const auto sampled = [](const std::string& seed) {
    return json_of(run({"run", pocket_model(), "-p", kQuestion, "-n", "24", "--json", "--temp",
                        "1.5", "--seed", seed}));
  };
  EXPECT_EQ(sampled("7")["tokens"], sampled("7")["tokens"]);
  EXPECT_NE(sampled("7")["tokens"], sampled("8")["tokens"]);
  EXPECT_EQ(sampled("7")["seed"], 7);
}

TEST(Run, StopStringsAndLengthsEndAnAnswer) {
  const Json full = json_of(run({"run", pocket_model(), "-p", kQuestion, "-n", "40", "--json"}));
  EXPECT_EQ(full["finish_reason"], "stop");
  EXPECT_EQ(full["stop"], nullptr);
  const std::string text = full["text"];
  ASSERT_GT(text.size(), 8U);
  const std::string stop = text.substr(4, 3);
  const Json stopped =
      json_of(run({"run", pocket_model(), "-p", kQuestion, "--json", "--stop", stop}));
  EXPECT_EQ(stopped["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["stop"], stop);
  const Json cut = json_of(run({"run", pocket_model(), "-p", kQuestion, "-n", "3", "--json"}));
  EXPECT_EQ(cut["finish_reason"], "length");
  EXPECT_EQ(cut["generated_tokens"], 3);
  const Json on =
      json_of(run({"run", pocket_model(), "-p", kQuestion, "-n", "40", "--json", "--ignore-eos"}));
  EXPECT_EQ(on["generated_tokens"], 40);
}

TEST(Run, LogprobsComeWithAlternatives) {
  const Json json = json_of(
      run({"run", pocket_model(), "-p", kQuestion, "-n", "4", "--json", "--logprobs", "3"}));
  ASSERT_EQ(json["logprobs"].size(), 4U);
  for (const Json& token : json["logprobs"]) {
    ASSERT_EQ(token["top"].size(), 3U);
    EXPECT_LE(token["logprob"].get<double>(), 0);
    EXPECT_EQ(token["top"][0]["token"], token["token"]);  // greedy takes the most likely
    EXPECT_GE(token["top"][0]["logprob"], token["top"][1]["logprob"]);
  }
}

TEST(Run, ThreadsAndInstructionSetsAreHonoured) {
  const Json one = json_of(run({"run", pocket_model(), "-p", kQuestion, "-n", "8", "--json",
                                "--threads", "1", "--numeric", "exact", "--cpu", "portable"}));
  EXPECT_EQ(one["threads"], 1);
  EXPECT_EQ(one["numerics"], "exact on cpu/portable");
  const Json by_variable =
      json_of(run({"run", pocket_model(), "-p", kQuestion, "-n", "8", "--json"}, "",
                  {{"MOTLEY_CPU", "portable"}, {"MOTLEY_NUMERIC", "exact"}}));
  EXPECT_EQ(by_variable["numerics"], "exact on cpu/portable");
  EXPECT_EQ(by_variable["tokens"], one["tokens"]);
}

TEST(Inspect, CountsEveryByte) {
  const Json json = json_of(run({"inspect", pocket_model(), "--json"}));
  EXPECT_EQ(json["vocab_size"], 6144);
  EXPECT_EQ(json["draft_layers"], 1);
  int64_t by_part = 0;
  for (const Json& part : json["bytes"]["by_part"]) by_part += part["file_bytes"].get<int64_t>();
  EXPECT_EQ(by_part, json["bytes"]["file"]);
  EXPECT_GT(json["parameters"]["total"], json["parameters"]["active"]);
  EXPECT_TRUE(json["text"]["template"]["tools"]);
  const Outcome table = run({"inspect", pocket_model()});
  EXPECT_NE(table.out.find("gated delta"), std::string::npos);
  EXPECT_NE(table.out.find("stop tokens"), std::string::npos);
}

TEST(Inspect, NeedsNoTokenizer) {
  const std::string fixture = std::string(MOTLEY_SOURCE_DIR) + "/tests/fixtures/tiny-qwen35";
  const Json json = json_of(run({"inspect", fixture, "--json"}));
  EXPECT_EQ(json["text"]["tokenizer"], nullptr);
  EXPECT_EQ(json["text"]["error"], "no tokenizer.json");
}

TEST(Verify, LayersOfThePocketModelPass) {
  const Outcome outcome = run({"verify", pocket_model(), "--numeric", "exact", "--json"});
  const Json json = json_of(outcome);
  ASSERT_EQ(json.size(), 1U);
  EXPECT_TRUE(json[0]["passed"]);
  EXPECT_GT(json[0]["layers"].size(), 8U);
}

TEST(Verify, RecomputesAFileOfReferenceOutputs) {
  const std::string fixture = std::string(MOTLEY_SOURCE_DIR) + "/../shared/fixtures/tiny-qwen35";
  if (!exists(fixture)) GTEST_SKIP() << "no " << fixture;
  const Outcome outcome = run({"verify", fixture, "--expected", fixture + "/expected.safetensors"});
  EXPECT_EQ(outcome.exit, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("all tensors within their limits"), std::string::npos);
}

TEST(Tokenize, RoundTrip) {
  const std::string text = "Gr\xC3\xBC\xC3\x9F dich, <|im_end|> \xF0\x9F\x8C\x8D";
  const Json json = json_of(run({"tokenize", pocket_model(), "--json", "--text", text}));
  EXPECT_EQ(json["text"], text);
  EXPECT_EQ(json["ids"].size(), json["pieces"].size());
  const Outcome ids = run({"tokenize", pocket_model(), "--ids"}, text);
  EXPECT_EQ(run({"tokenize", pocket_model(), "--decode"}, ids.out).out, text);
  const Outcome plain = run({"tokenize", pocket_model(), "--ids", "--plain"}, text);
  EXPECT_GT(plain.out.size(), ids.out.size());
}

TEST(Template, RendersMessages) {
  const TemporaryFolder folder;
  const std::string path = folder.write("chat.json", R"([{"role": "user", "content": "Hi"}])");
  EXPECT_EQ(run({"template", path, pocket_model()}).out,
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(run({"template", path, pocket_model(), "--no-generation-prompt"}).out,
            "<|im_start|>user\nHi<|im_end|>\n");
  const std::string tools = folder.write("tools.json", R"([{"name": "f"}])");
  EXPECT_NE(run({"template", path, pocket_model(), "--tools", tools})
                .out.find("<tools>\n{\"name\": \"f\"}\n</tools>"),
            std::string::npos);
}

TEST(Bench, ReportsSpeedsAndShares) {
  const Json json = json_of(run({"bench", "model", pocket_model(), "--prompt", "32", "--generate",
                                 "8", "--repeat", "1", "--no-machine", "--json"}));
  EXPECT_GT(json["prefill_tokens_per_s"], 0);
  EXPECT_GT(json["decode_tokens_per_s"], 0);
  EXPECT_GT(json["weight_bytes_per_token"], 1'000'000);
  EXPECT_EQ(json["bandwidth_share"], 0);  // not measured
}

TEST(Pages, ManualAndCompletionsAreAccepted) {
  EXPECT_EQ(run({"man"}).out.rfind(".TH MOTLEY 1", 0), 0U);
  const TemporaryFolder folder;
  const std::string script = folder.write("c.bash", run({"completion", "bash"}).out);
  EXPECT_EQ(std::system(("bash -n " + script).c_str()), 0);
  const std::string check =
      "bash -c 'source " + script +
      "; COMP_WORDS=(motley run --thr); COMP_CWORD=2; _motley; [ \"$COMPREPLY\" = --threads ]'";
  EXPECT_EQ(std::system(check.c_str()), 0);
}

}  // namespace
}  // namespace motley::e2e
