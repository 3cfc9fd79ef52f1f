#include <gtest/gtest.h>

#include "base/owned_context.h"
#include "engine/engine_test_util.h"
#include "engine/verify/label_check.h"
#include "engine/verify/verify_expected.h"
#include "engine/verify/verify_layers.h"

namespace motley {
namespace {

std::string expected_file() {
  return tiny_fixture() + "/expected.safetensors";
}

EngineOptions exact_with_drafts() {
  EngineOptions options;
  options.profile = NumericProfile::kExact;
  options.drafts = true;
  return options;
}

TEST(VerifyExpected, EveryTensorOfTheFixtureIsReproduced) {
  OwnedContext context({.threads = 2, .pin = false});
  const std::unique_ptr<Engine> engine = load_tiny(context, exact_with_drafts());
  const ExpectedTensors expected = ExpectedTensors::open(context.get(), expected_file()).value();
  const Result<VerifyReport> report = verify_expected(*engine, expected, {});
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_TRUE(report->passed()) << report->table();
  // Every tensor but ids and margins has a row, and the fast pass has two.
  size_t wanted = 2;
  for (const std::string& name : expected.names()) {
    if (!name.ends_with(".ids") && !name.ends_with("_margin")) ++wanted;
  }
  EXPECT_EQ(report->rows.size(), wanted);
}

TEST(VerifyExpected, AWrongModelIsFound) {
  OwnedContext context({.threads = 2, .pin = false});
  const std::unique_ptr<Engine> engine = load_tiny(context, exact_with_drafts());
  const ExpectedTensors expected = ExpectedTensors::open(context.get(), expected_file()).value();
  TraceRequest request = request_for(expected, "short", 512);
  request.prompt[4] ^= 1;
  const SequenceTrace trace = trace_sequence(*engine, request).value();
  VerifyReport report;
  check_label(expected, "short", engine->spec(), trace, &report);
  EXPECT_FALSE(report.passed());
  EXPECT_NE(report.table().find("first off: short."), std::string::npos);
}

TEST(VerifyExpected, HostileExpectationsAreRefusedByName) {
  OwnedContext context({.threads = 1});
  EXPECT_NE(ExpectedTensors::open(context.get(), "/nowhere").status().message().find("/nowhere"),
            std::string::npos);
  const std::string weights = tiny_fixture() + "/model.safetensors";
  const Status status = ExpectedTensors::open(context.get(), weights).status();
  EXPECT_NE(status.message().find("BF16"), std::string::npos) << status.message();
}

TEST(VerifyLayers, BothProfilesStayNearTheReference) {
  OwnedContext context({.threads = 2, .pin = false});
  for (const NumericProfile profile : {NumericProfile::kExact, NumericProfile::kFast}) {
    EngineOptions options;
    options.profile = profile;
    const std::unique_ptr<Engine> engine = load_tiny(context, options);
    const Result<LayerReport> report = verify_layers(*engine, {.prefill_tokens = 70});
    ASSERT_TRUE(report.is_ok()) << report.status().message();
    EXPECT_TRUE(report->passed()) << report->table();
    EXPECT_EQ(report->layers.size(), 2u * (8 + 1));
  }
}

TEST(VerifyReport, TooManyExcusesFail) {
  VerifyReport report;
  report.routed_rows = 1000;
  report.excused_rows = 5;
  EXPECT_TRUE(report.passed());
  report.excused_rows = 6;
  EXPECT_FALSE(report.passed());
}

TEST(VerifyReport, SaysWhatFastIsOnItsOwnWhenChoicesWereTaken) {
  VerifyReport report;
  EXPECT_EQ(report.table().find("on its own"), std::string::npos);
  EXPECT_EQ(report.json().find("fast_alone"), std::string::npos);
  report.fast_alone = {{.loss = 0.009, .rows = 0.029}};
  report.fast_forced_rows = 672;
  EXPECT_NE(report.table().find("fast with 672 routing choices"), std::string::npos);
  EXPECT_NE(report.table().find("on 2.9 % of rows"), std::string::npos);
  EXPECT_NE(report.json().find("\"fast_forced_rows\": 672"), std::string::npos);
  EXPECT_NE(report.json().find("\"fast_alone\": {\"mean_loss\": 0.009"), std::string::npos);
}

TEST(RouteTable, CountsChoicesBelowAGap) {
  RouteTable table;
  table.set(0, 0, {.experts = {1, 2}, .gap = 1e-6});
  table.set(0, 1, {.experts = {1, 2}, .gap = 1e-3});
  table.set(1, 0, {.experts = {1, 2}, .gap = 0.1});
  EXPECT_EQ(table.near_ties(), 1);
  EXPECT_EQ(table.near_ties(kFastNearTie), 2);
  EXPECT_EQ(table.near_ties(kAnyGap), 3);
}

TEST(FastTotals, ErrorsAreOfMeansAndShares) {
  const FastTotals totals{
      .expected_loss = 10, .loss = 11, .losses = 4, .rows = 200, .rows_equal = 199};
  EXPECT_DOUBLE_EQ(totals.loss_error(), 0.25);
  EXPECT_DOUBLE_EQ(totals.row_error(), 0.005);
  EXPECT_EQ(FastTotals{}.loss_error(), 0);
  EXPECT_EQ(FastTotals{}.row_error(), 0);
}

}  // namespace
}  // namespace motley
