// motley bench cache: made-up routes, hit rates in order, and usage errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "e2e/process.h"

namespace motley::e2e {
namespace {

using Json = nlohmann::json;

std::map<std::string, double> hit_rates(const Json& residency) {
  std::map<std::string, double> rates;
  for (const Json& row : residency["policies"]) rates[row["policy"]] = row["hit_rate"];
  return rates;
}

TEST(BenchCache, ComparesPoliciesAndBounds) {
  const Outcome outcome =
      run({"bench", "cache", "--synthetic", "zipf", "--layers", "4", "--experts", "64", "--top",
           "4", "--tokens", "800", "--residency", "25,50", "--expert-bytes", "1MB", "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const Json json = Json::parse(outcome.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << outcome.out;
  EXPECT_EQ(json["decoded_tokens"], 800);
  ASSERT_EQ(json["residencies"].size(), 2U);
  EXPECT_EQ(json["residencies"][0]["slots"], 64);
  auto quarter = hit_rates(json["residencies"][0]);
  const auto half = hit_rates(json["residencies"][1]);
  ASSERT_EQ(quarter.size(), 4U);
  EXPECT_GT(quarter["motley"], quarter["LRU"] + 0.05);
  for (const auto& [policy, rate] : quarter) {
    EXPECT_LE(rate, quarter["Belady"]) << policy;
    EXPECT_LT(rate, half.at(policy)) << policy;
  }
  const Json& row = json["residencies"][0]["policies"][0];
  EXPECT_EQ(row["bytes_per_token"], 1e6 * row["misses_per_token"].get<double>());
}

// Routes of a trained model, over texts of several kinds in one sequence.
TEST(BenchCache, OursIsNearTheBetterOfLruAndLfuOnRoutesOfATrainedModel) {
  const TemporaryFolder folder;
  const std::string trace = folder.path() + "/routes";
  const Outcome outcome =
      run({"run", pocket_model(), "-p", "Name three fruits, then count to nine.", "-n", "1500",
           "--ignore-eos", "--temp", "1", "--seed", "7", "--record-routes", trace});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const Outcome replay =
      run({"bench", "cache", "--trace", trace, "--residency", "25,50", "--json"});
  ASSERT_EQ(replay.exit, 0) << replay.err;
  const Json json = Json::parse(replay.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << replay.out;
  EXPECT_GE(json["decoded_tokens"], 1499);
  for (const Json& residency : json["residencies"]) {
    auto rates = hit_rates(residency);
    EXPECT_GE(rates["motley"], std::max(rates["LRU"], rates["LFU"]) - 0.02) << replay.out;
    EXPECT_LE(rates["motley"], rates["Belady"]);
  }
}

TEST(BenchCache, ATableForPeopleSaysWhatDoesNotFit) {
  const Outcome outcome = run({"bench", "cache", "--synthetic", "scan", "--layers", "3",
                               "--experts", "32", "--top", "4", "--tokens", "100"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("expert cache: 5 slots, but 3 layers with a floor of 4 need 12"),
            std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("Belady"), std::string::npos);
  EXPECT_NE(outcome.out.find("100 decoded tokens"), std::string::npos);
}

TEST(BenchCache, UsageIsChecked) {
  const auto refused = [](std::vector<std::string> more, int exit, const std::string& part) {
    std::vector<std::string> words = {"bench", "cache"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.exit, exit) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  refused({}, 2, "give --trace FILE or --synthetic PATTERN");
  refused({"--trace", "x", "--synthetic", "zipf"}, 2, "one of them");
  refused({"--trace", "x", "--experts", "8"}, 2, "--experts has no effect with --trace");
  refused({"--synthetic", "scan", "--skew", "2"}, 2, "--skew has no effect with scan");
  refused({"--synthetic", "zipf", "--shift-every", "9"}, 2, "no effect with zipf");
  refused({"--synthetic", "zipf", "--residency", "0"}, 2, "--residency needs");
  refused({"--synthetic", "zipf", "--residency", "5,,9"}, 2, "--residency needs");
  refused({"--synthetic", "zipf", "--experts", "4"}, 1, "8 per token");
  refused({"--trace", "/no/such/trace"}, 1, "/no/such/trace");
  const TemporaryFolder folder;
  refused({"--trace", folder.write("routes", "nothing of the kind")}, 1, "not a trace of routes");
}

}  // namespace
}  // namespace motley::e2e
