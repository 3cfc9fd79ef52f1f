// `motley plan` and `motley doctor` as processes: outputs, caches, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/large_model.h"
#include "e2e/process.h"

namespace motley::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

TEST(Plan, PrintsTheLedgerAndAPrediction) {
  const TemporaryFolder cache;
  const Variables variables = {{"XDG_CACHE_HOME", cache.path()}};
  const Outcome table = run({"plan", "--expert-cache", "25%"}, "", variables);
  ASSERT_EQ(table.exit, 0) << table.err;
  EXPECT_EQ(table.err, "");
  for (const char* part : {"weights ", "expert cache ", "floor ", "decode ", "prefill 512 ",
                           "prefill 8192 ", "25.0 % hits", "bound by ", "measured now"}) {
    EXPECT_THAT(table.out, HasSubstr(part));
  }
  const Outcome again = run({"plan", "--expert-cache", "25%", "--json"}, "", variables);
  ASSERT_EQ(again.exit, 0) << again.err;
  const Json json = Json::parse(again.out);
  EXPECT_TRUE(json.at("rates").at("cached").get<bool>());
  EXPECT_TRUE(json.at("drive").at("cached").get<bool>());
  EXPECT_GT(json.at("prediction").at("decode").at("tokens_per_s").get<double>(), 0);
  EXPECT_EQ(json.at("memory").at("slots"), 64);
}

TEST(Plan, AgreesWithRunAboutMemory) {
  const TemporaryFolder cache;
  const Variables variables = {{"XDG_CACHE_HOME", cache.path()}};
  const Outcome planned = run({"plan", "--expert-cache", "50%", "--json"}, "", variables);
  ASSERT_EQ(planned.exit, 0) << planned.err;
  const Outcome ran =
      run({"run", "-p", "Hi", "-n", "2", "--expert-cache", "50%", "--json"}, "", variables);
  ASSERT_EQ(ran.exit, 0) << ran.err;
  const Json memory = Json::parse(planned.out).at("memory");
  const Json streaming = Json::parse(ran.out).at("streaming");
  EXPECT_EQ(streaming.at("slots"), memory.at("slots"));
  EXPECT_EQ(streaming.at("planned_bytes"), memory.at("total_bytes"));
  // The drive that was probed is the one that the run reads from.
  EXPECT_GT(streaming.at("probed_share").get<double>(), 0);
}

TEST(Plan, TakesFewerExpertsForWhatTheyAre) {
  const TemporaryFolder cache;
  const Variables variables = {{"XDG_CACHE_HOME", cache.path()}};
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan", "--expert-cache", "50%", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words, "", variables);
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    return Json::parse(outcome.out);
  };
  const Json whole = plan({});
  const Json fewer = plan({"--experts", "1"});
  EXPECT_THAT(fewer.at("numerics"), HasSubstr("LOSSY: 1 of the model's 4 experts a token"));
  const auto bytes = [](const Json& json) {
    return json.at("prediction").at("decode").at("drive_bytes").get<double>();
  };
  EXPECT_NEAR(bytes(fewer), bytes(whole) / 4, 1);
  const Outcome refused = run({"plan", "--experts", "9"}, "", variables);
  EXPECT_EQ(refused.exit, 1);
  EXPECT_THAT(refused.err, HasSubstr("9 experts per token wanted, the model's own are 4"));
}

TEST(Plan, ProbesThePackThatARunWouldRead) {
  const TemporaryFolder cache;
  const TemporaryFolder folder;
  const Variables variables = {{"XDG_CACHE_HOME", cache.path()}};
  const std::string pack = folder.path() + "/pack";
  ASSERT_EQ(run({"pack", pocket_model(), pack}).exit, 0);
  const auto reads = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan", "--expert-cache", "50%", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words, "", variables);
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    return Json::parse(outcome.out).at("drive").at("reads_per_expert").get<int>();
  };
  EXPECT_GT(reads({}), 2);
  EXPECT_EQ(reads({"--packed", pack}), 2);
  const Outcome refused =
      run({"plan", "--expert-cache", "50%", "--packed", cache.path()}, "", variables);
  EXPECT_EQ(refused.exit, 1);
  EXPECT_THAT(refused.err, HasSubstr(cache.path()));
}

TEST(Plan, RefusesAsRunDoes) {
  const std::vector<std::vector<std::string>> refused = {
      {"--memory", "20MB"}, {"--memory", "900TB"}, {"--expert-cache", "1%"}};
  for (const std::vector<std::string>& options : refused) {
    std::vector<std::string> plan = {"plan"};
    std::vector<std::string> run_words = {"run", "-p", "x"};
    plan.insert(plan.end(), options.begin(), options.end());
    run_words.insert(run_words.end(), options.begin(), options.end());
    const Outcome planned = run(plan);
    const Outcome ran = run(run_words);
    EXPECT_EQ(planned.exit, 1);
    EXPECT_EQ(planned.out, "");
    EXPECT_EQ(planned.err, ran.err);
  }
  EXPECT_EQ(run({"plan", "--memory", "much"}).exit, 2);
  EXPECT_EQ(run({"plan", "/absent"}).exit, 1);
}

TEST(Plan, WorksWithoutAPlaceForItsCache) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  const Outcome outcome = run({"plan"}, "", {{"XDG_CACHE_HOME", folder.path() + "/file"}});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("note            cache of rates"));
  EXPECT_THAT(outcome.out, HasSubstr("decode "));
}

TEST(Doctor, LooksAtThisMachine) {
  const TemporaryFolder folder;
  const Variables variables = {{"XDG_CACHE_HOME", folder.path()}};
  const Outcome table = run({"doctor", MOTLEY_SOURCE_DIR}, "", variables);
  EXPECT_EQ(table.exit, 0) << table.out << table.err;
  for (const char* topic : {"processor ", "cores ", "memory ", "memory limit ", "locking ",
                            "huge pages ", "reads ", "GPU ", "drive "}) {
    EXPECT_THAT("\n" + table.out, HasSubstr("\n" + std::string(topic))) << topic;
  }
  EXPECT_THAT(table.out, Not(HasSubstr("BAD")));
  const Outcome json = run({"doctor", "--json", MOTLEY_SOURCE_DIR}, "", variables);
  EXPECT_EQ(json.exit, 0) << json.err;
  const Json findings = Json::parse(json.out).at("findings");
  EXPECT_EQ(findings.size(), 9U);
  EXPECT_EQ(findings.back().at("topic"), "drive");
  const Outcome absent = run({"doctor", "/absent"}, "", variables);
  EXPECT_EQ(absent.exit, 1);
  EXPECT_THAT(absent.err, HasSubstr("/absent: there is no such file or folder"));
}

}  // namespace
}  // namespace motley::e2e
