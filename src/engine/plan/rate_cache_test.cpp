#include "engine/plan/rate_cache.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "io/kept_results.h"
#include "support/test_files.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

StoredRates made_up(std::string key) {
  return {.key = std::move(key),
          .taken_unix_s = unix_now_s(),
          .rates = {.threads = 2,
                    .near_tokens = 512,
                    .chunk_tokens = 512,
                    .head_s = 0.0123456789012345,
                    .head_bytes = 1'000'000,
                    .read_one_bytes_per_s = 1.25e10,
                    .read_all_bytes_per_s = 2.5e10,
                    .kinds = {{.decode_s = 1e-3,
                               .decode_per_context_s = 0,
                               .experts_s = 5e-4,
                               .expert_alone_s = 1e-4,
                               .prefill_s = 0.1,
                               .prefill_per_position_s = 1.0 / 3e6,
                               .prefill_experts_s = 0.2}}}};
}

TEST(RateCache, TextAndBack) {
  const std::vector<StoredRates> all = {made_up("a \"b\""), made_up("c")};
  const auto parsed = parse_model_rates(format_model_rates(all), "f");
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
  EXPECT_EQ(*parsed, all);
  EXPECT_TRUE(parse_model_rates(format_model_rates({}), "f")->empty());
}

TEST(RateCache, RefusesWhatItDidNotWrite) {
  const std::string good = format_model_rates(std::vector<StoredRates>{made_up("k")});
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    text.replace(at, from.size(), to);
    return parse_model_rates(text, "f").status().message();
  };
  EXPECT_THAT(with("rates 1", "rates 2"), HasSubstr("f: format"));
  EXPECT_THAT(with("\"threads\": 2", "\"threads\": 0"), HasSubstr("threads"));
  EXPECT_THAT(with("\"decode_s\": 0.001", "\"decode_s\": 0"), HasSubstr("kinds[0].decode_s"));
  EXPECT_THAT(with("\"decode_s\": 0.001", "\"decode_s\": 1e300"), HasSubstr("decode_s"));
  EXPECT_THAT(with("\"head_bytes\": 1000000", "\"head_bytes\": -1"), HasSubstr("head_bytes"));
  EXPECT_THAT(with("12500000000", "\"fast\""), HasSubstr("read_one_bytes_per_s"));
  EXPECT_THAT(with("\"k\"", "\"" + std::string(2000, 'x') + "\""), HasSubstr("key"));
  EXPECT_THAT(parse_model_rates("[]", "f").status().message(), HasSubstr("f"));
  EXPECT_THAT(parse_model_rates(std::string(300'000, ' '), "f").status().message(), HasSubstr("f"));
}

TEST(RateCache, KeepsResultsByTheirQuestion) {
  const TemporaryDirectory directory;
  const std::string path = directory / "new/folder/rates.json";
  FaultPoints faults;
  EXPECT_TRUE(load_model_rates(faults, path)->empty());
  EXPECT_TRUE(load_model_rates(faults, "")->empty());
  ASSERT_TRUE(store_model_rates(faults, path, {}, made_up("a")).is_ok());
  ASSERT_TRUE(
      store_model_rates(faults, path, *load_model_rates(faults, path), made_up("b")).is_ok());
  StoredRates again = made_up("a");
  again.rates.head_s = 7;
  ASSERT_TRUE(store_model_rates(faults, path, *load_model_rates(faults, path), again).is_ok());
  const std::vector<StoredRates> all = *load_model_rates(faults, path);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(find_model_rates(all, "a", 1000)->rates.head_s, 7);
  EXPECT_FALSE(find_model_rates(all, "other", 1000).has_value());
  EXPECT_FALSE(find_model_rates(all, "a", -1).has_value());
  again.taken_unix_s += 5000;  // of a clock that was set back
  EXPECT_FALSE(find_model_rates(std::vector{again}, "a", 1000).has_value());
}

TEST(RateCache, ForgetsTheOldest) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  std::vector<StoredRates> many;
  many.reserve(64);
  for (int i = 0; i < 64; ++i) many.push_back(made_up(std::to_string(i)));
  ASSERT_TRUE(store_model_rates(faults, directory / "r", many, made_up("new")).is_ok());
  const std::vector<StoredRates> all = *load_model_rates(faults, directory / "r");
  ASSERT_EQ(all.size(), 64U);
  EXPECT_EQ(all.front().key, "1");
  EXPECT_EQ(all.back().key, "new");
  // Long keys: as many as the reader takes.
  for (StoredRates& each : many) each.key.append(900, 'x');
  for (StoredRates& each : many) each.rates.kinds.resize(16, each.rates.kinds.front());
  ASSERT_TRUE(store_model_rates(faults, directory / "r", many, made_up("new")).is_ok());
  EXPECT_TRUE(load_model_rates(faults, directory / "r").is_ok());
}

TEST(RateCache, AFailedWriteLeavesTheOldFile) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  ASSERT_TRUE(store_model_rates(faults, directory / "r", {}, made_up("a")).is_ok());
  faults.arm("io.publish", 1, io_error("x"));
  EXPECT_FALSE(store_model_rates(faults, directory / "r", {}, made_up("b")).is_ok());
  EXPECT_EQ(load_model_rates(faults, directory / "r")->front().key, "a");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(RateKey, DiffersWithEveryPartOfTheQuestion) {
  const RateQuestion question{"cpu", 2, "fast on cpu/avx512", "v1", "shapes"};
  const std::string key = rate_key(question);
  for (const RateQuestion& other : {RateQuestion{"gpu", 2, "fast on cpu/avx512", "v1", "shapes"},
                                    RateQuestion{"cpu", 3, "fast on cpu/avx512", "v1", "shapes"},
                                    RateQuestion{"cpu", 2, "exact on cpu/avx512", "v1", "shapes"},
                                    RateQuestion{"cpu", 2, "fast on cpu/avx512", "v2", "shapes"},
                                    RateQuestion{"cpu", 2, "fast on cpu/avx512", "v1", "shape"}}) {
    EXPECT_NE(rate_key(other), key);
  }
}

}  // namespace
}  // namespace motley
