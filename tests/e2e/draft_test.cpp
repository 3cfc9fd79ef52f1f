// --draft from outside: the same answer, what is reported, what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "e2e/process.h"

namespace motley::e2e {
namespace {

using Json = nlohmann::json;

Json answer(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"run", pocket_model(), "-p",           "Who are you?",
                                        "-n",  "60",           "--ignore-eos", "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  Json json = Json::parse(outcome.out, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << outcome.out;
  return json;
}

TEST(Draft, TheAnswerIsTheSame) {
  for (const std::vector<std::string>& sampling :
       {std::vector<std::string>{}, {"--temp", "0.8", "--seed", "4", "--logprobs", "2"}}) {
    const Json plain = answer(sampling);
    EXPECT_TRUE(plain["drafts"].is_null());
    for (const char* drafts : {"1", "4", "8", "auto"}) {
      std::vector<std::string> more = sampling;
      more.insert(more.end(), {"--draft", drafts});
      const Json drafted = answer(more);
      EXPECT_EQ(drafted["tokens"], plain["tokens"]) << drafts;
      EXPECT_EQ(drafted["text"], plain["text"]);
      EXPECT_EQ(drafted.value("logprobs", Json()), plain.value("logprobs", Json()));
      EXPECT_EQ(drafted["generated_tokens"], 60);
    }
  }
}

TEST(Draft, CountsAreReported) {
  const Json json = answer({"--draft", "3"});
  const Json& drafts = json["drafts"];
  EXPECT_EQ(drafts["most"], 3);
  EXPECT_EQ(drafts["tried"].size(), 3U);
  EXPECT_GT(drafts["tried"][0], 5);
  EXPECT_EQ(drafts["steps_by_accepted"].size(), 4U);
  EXPECT_LE(drafts["accepted"][0], drafts["tried"][0]);
  EXPECT_NE(answer({"--draft", "auto"})["drafts"]["auto"].get<std::string>().find("a step"),
            std::string::npos);
  const Outcome text = run({"run", pocket_model(), "-p", "Who are you?", "--draft", "3"});
  EXPECT_NE(text.err.find("drafts   "), std::string::npos) << text.err;
  EXPECT_NE(text.err.find("tokens each; accepted"), std::string::npos) << text.err;
}

TEST(Draft, StopsInsideADraft) {
  const std::vector<std::string> base = {"run", pocket_model(), "-p", "Who are you?"};
  const std::string whole = run(base).out;
  ASSERT_GT(whole.size(), 30U);
  std::vector<std::string> stopped = base;
  stopped.insert(stopped.end(), {"--stop", whole.substr(20, 6)});
  const Outcome plain = run(stopped);
  stopped.insert(stopped.end(), {"--draft", "5"});
  EXPECT_EQ(run(stopped).out, plain.out);
}

TEST(Draft, WhatCannotBeIsRefused) {
  for (const char* wrong : {"9", "-1", "many", "", "1.5"}) {
    const Outcome outcome =
        run({"run", pocket_model(), "-p", "x", std::string("--draft=") + wrong});
    EXPECT_EQ(outcome.exit, 2) << wrong << outcome.err;
    EXPECT_NE(outcome.err.find("draft"), std::string::npos) << outcome.err;
  }
}

TEST(Draft, BenchReportsThem) {
  const Outcome outcome = run({"bench", "model", pocket_model(), "--no-machine", "--prompt", "32",
                               "--generate", "40", "--repeat", "1", "--draft", "2", "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["drafts"]["most"], 2);
  EXPECT_GT(json["drafts"]["steps"], 0);
  EXPECT_GT(json["decode_tokens_per_s"], 0);
}

}  // namespace
}  // namespace motley::e2e
