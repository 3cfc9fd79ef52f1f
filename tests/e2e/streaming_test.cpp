// A model inside a memory budget that is smaller than the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "e2e/large_model.h"
#include "e2e/process.h"

namespace motley::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

Json resident_answer(std::vector<std::string> words) {
  words.insert(words.end(), {"--json", "--temp", "0", "--ignore-eos"});
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  return Json::parse(outcome.out, nullptr, false);
}

TEST(Streaming, GivesTheTokensOfTheModelInMemory) {
  const std::vector<std::string> words = {"run", "-p", "Who are you, and what can you do?", "-n",
                                          "60"};
  const Json resident = resident_answer(words);
  EXPECT_TRUE(resident.at("streaming").is_null());
  for (const char* share : {"100%", "50%", "25%", "12.5%"}) {
    for (const char* io : {"uring", "pread"}) {
      std::vector<std::string> streamed = words;
      streamed.insert(streamed.end(), {"--expert-cache", share, "--io", io});
      streamed.insert(streamed.end(), {"--json", "--temp", "0", "--ignore-eos"});
      const Outcome outcome = run(streamed);
      // Where the system forbids a ring, the program says so; any other failure is one.
      if (outcome.exit != 0 && outcome.err.find("io_uring: ") != std::string::npos) continue;
      ASSERT_EQ(outcome.exit, 0) << outcome.err;
      const Json json = Json::parse(outcome.out);
      EXPECT_EQ(json.at("tokens"), resident.at("tokens")) << share << " " << io;
      EXPECT_GT(json.at("streaming").at("read_bytes").get<int64_t>(), 0);
    }
  }
}

TEST(Streaming, KeepsTheBudget) {
  if (!std::string(MOTLEY_SANITIZERS).empty()) GTEST_SKIP() << "sanitizers need memory themselves";
  const TemporaryFolder folder;
  if (std::filesystem::space(folder.path()).available < 2'000'000'000) {
    GTEST_SKIP() << "needs 2 GB of disk";
  }
  const std::string model = folder.path() + "/large";
  ASSERT_NO_FATAL_FAILURE(make_large_model(folder, model));
  ASSERT_GT(bytes_of_weights(model), 500'000'000);
  const std::vector<std::string> words = {"run", model,    "-p",           "Go on.", "-n",
                                          "64",  "--json", "--ignore-eos", "--temp", "0"};
  const Outcome resident = run(words);
  ASSERT_EQ(resident.exit, 0) << resident.err;
  for (const int64_t budget : {200'000'000, 400'000'000}) {
    std::vector<std::string> bounded = words;
    bounded.insert(bounded.end(), {"--memory", std::to_string(budget)});
    const Outcome outcome = run(bounded);
    ASSERT_EQ(outcome.exit, 0) << outcome.err;
    EXPECT_LE(outcome.peak_bytes, budget + budget / 50);
    const Json json = Json::parse(outcome.out);
    EXPECT_LE(json.at("streaming").at("planned_bytes").get<int64_t>(), budget);
    EXPECT_EQ(json.at("tokens"), Json::parse(resident.out).at("tokens"));
  }
}

TEST(Streaming, RefusesWhatCannotBeInOneLine) {
  const Outcome small = run({"run", "--memory", "20MB", "-p", "x"});
  EXPECT_EQ(small.exit, 1);
  EXPECT_THAT(small.err, HasSubstr("of memory are too little: weights "));
  EXPECT_THAT(small.err, HasSubstr("give more with --memory"));
  const Outcome huge = run({"run", "--memory", "900TB", "-p", "x"});
  EXPECT_EQ(huge.exit, 1);
  EXPECT_THAT(huge.err, HasSubstr("this machine allows"));
  const Outcome floor = run({"run", "--expert-cache", "1%", "-p", "x"});
  EXPECT_EQ(floor.exit, 1);
  EXPECT_THAT(floor.err, HasSubstr("is too small: 8 layers need 4 each at once"));
  for (const char* bad : {"8gibi", "0", "-1", "101%", ""}) {
    const Outcome outcome = run({"run", "--memory", bad, "-p", "x"});
    EXPECT_EQ(outcome.exit, 2) << bad;
    EXPECT_THAT(outcome.err, StartsWith("motley: ")) << bad;
  }
}

TEST(Streaming, SaysWhatItDid) {
  const Outcome outcome = run({"run", "--expert-cache", "50%", "-p", "Hello", "-n", "8"});
  EXPECT_EQ(outcome.exit, 0);
  EXPECT_THAT(outcome.err, HasSubstr("streamed: 4 experts a token, 128 of 256 in memory, "));
  EXPECT_EQ(run({"run", "-p", "Hello", "-n", "8"}).err.find("streamed"), std::string::npos);
}

}  // namespace
}  // namespace motley::e2e
