#include "engine/soak.h"

#include <gmock/gmock.h>

#include "engine/engine_test_util.h"
#include "support/random_cases.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

SoakSample sample_of(uint64_t resident_mb, int64_t descriptors, int64_t threads) {
  SoakSample sample;
  sample.memory.resident_bytes = resident_mb << 20;
  sample.handles = {.descriptors = descriptors, .threads = threads};
  return sample;
}

SoakReport report_of(std::vector<SoakSample> samples) {
  SoakReport report;
  report.samples = std::move(samples);
  report.allowed_growth_bytes = 16 << 20;
  return report;
}

TEST(SoakReport, MemoryOfTheSecondHalfIsHeldAgainstTheFirst) {
  const auto grown = [](uint64_t last_mb) {
    return report_of({sample_of(100, 9, 3), sample_of(200, 9, 3), sample_of(190, 9, 3),
                      sample_of(last_mb, 9, 3)});
  };
  EXPECT_EQ(grown(216).growth_bytes(), 16 << 20);
  EXPECT_TRUE(grown(216).passed());
  EXPECT_FALSE(grown(217).passed());
  EXPECT_TRUE(grown(150).passed());  // less than before is no growth
  EXPECT_THAT(grown(217).table(), HasSubstr("FAILED"));
}

TEST(SoakReport, OneDescriptorOrThreadMoreIsTooMany) {
  EXPECT_FALSE(report_of({sample_of(1, 9, 3), sample_of(1, 10, 3)}).passed());
  EXPECT_FALSE(report_of({sample_of(1, 9, 3), sample_of(1, 9, 4)}).passed());
  EXPECT_TRUE(report_of({sample_of(1, 10, 4), sample_of(1, 9, 3)}).passed());
}

TEST(SoakReport, AFailedRequestFailsIt) {
  SoakReport report = report_of({sample_of(1, 9, 3), sample_of(1, 9, 3)});
  EXPECT_TRUE(report.passed());
  report.failed = 1;
  report.first_failure = "expert 3";
  EXPECT_FALSE(report.passed());
  EXPECT_THAT(report.table(), HasSubstr("first failure: expert 3"));
}

TEST(Soak, StreamedRequestsHoldNothingAfterwards) {
  OwnedContext context({.threads = 2, .pin = false});
  EngineOptions engine_options;
  engine_options.expert_cache = {.share = 0.25};
  const std::unique_ptr<Engine> engine = load_tiny(context, engine_options);
  SoakOptions options;
  options.seconds = random_cases(4) < 4 ? 8 : 2;  // slow builds get through less
  options.max_prompt_tokens = 60;
  options.max_new_tokens = 20;
  options.requests_at_once = 3;
  options.samples = 10;
  const Result<SoakReport> report = soak(*engine, options);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_GE(report->samples.size(), 2u);
  EXPECT_GT(report->samples.back().requests, 10);
  EXPECT_GT(report->cancelled, 0);
  EXPECT_EQ(report->failed, 0) << report->first_failure;
  EXPECT_EQ(report->descriptor_growth(), 0);
  EXPECT_EQ(report->thread_growth(), 0);
}

TEST(Soak, TheFirstRequestIsTheLongest) {
  OwnedContext context({.threads = 2, .pin = false});
  const std::unique_ptr<Engine> engine = load_tiny(context, {});
  SoakOptions options{.seconds = 1000, .max_prompt_tokens = 60, .max_new_tokens = 20};
  options.requests_at_once = 1;
  options.samples = 1'000'000;  // a millisecond each
  bool done = false;
  options.is_interrupted = [&done] { return done; };
  options.progress = [&done](std::string_view line) {
    done = line.find(" 0 requests") == std::string_view::npos;
  };
  const Result<SoakReport> report = soak(*engine, options);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_GE(report->samples.back().tokens, 80);
  EXPECT_EQ(report->failed, 0) << report->first_failure;
}

TEST(Soak, EndsWhenAsked) {
  OwnedContext context({.threads = 2, .pin = false});
  const std::unique_ptr<Engine> engine = load_tiny(context, {});
  SoakOptions options{.seconds = 1000, .max_prompt_tokens = 8, .max_new_tokens = 4};
  options.is_interrupted = [asked = 0]() mutable { return ++asked > 5; };
  const Result<SoakReport> report = soak(*engine, options);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_EQ(report->samples.size(), 1u);
}

TEST(Soak, RefusesWhatTheContextDoesNotHold) {
  OwnedContext context({.threads = 1, .pin = false});
  EngineOptions engine_options;
  engine_options.context_length = 40;
  const std::unique_ptr<Engine> engine = load_tiny(context, engine_options);
  EXPECT_THAT(soak(*engine, {.max_prompt_tokens = 30, .max_new_tokens = 11}).status().message(),
              HasSubstr("exceed the context of 40"));
  EXPECT_FALSE(soak(*engine, {.seconds = 0, .max_prompt_tokens = 1}).is_ok());
}

}  // namespace
}  // namespace motley
