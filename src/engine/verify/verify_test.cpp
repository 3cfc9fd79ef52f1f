#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/owned_context.h"
#include "engine/engine_test_util.h"
#include "engine/verify/expected_shapes.h"
#include "engine/verify/label_check.h"
#include "engine/verify/verify_expected.h"
#include "engine/verify/verify_layers.h"
#include "support/test_files.h"

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
  EXPECT_NE(status.message().find(weights + ": tensor "), std::string::npos) << status.message();
}

// A file of expected outputs, tensor by tensor.
class ExpectedFile {
 public:
  void add(const std::string& name, const std::string& dtype, const std::string& shape,
           const std::string& bytes) {
    header_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                           header_.empty() ? "" : ",", name, dtype, shape, data_.size(),
                           data_.size() + bytes.size());
    data_ += bytes;
  }
  template <typename T>
  void add(const std::string& name, const std::string& dtype, const std::vector<T>& values) {
    add(name, dtype, fmt::format("[{}]", values.size()),
        std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
  }
  Result<ExpectedTensors> open(Context& context) const {
    const TemporaryDirectory folder;
    folder.write("e.safetensors", raw_safetensors("{" + header_ + "}", data_));
    return ExpectedTensors::open(context, folder / "e.safetensors");
  }

 private:
  std::string header_;
  std::string data_;
};

// Ids 1, 2, 3 and losses for them under the label "short".
ExpectedFile small_expectation() {
  ExpectedFile file;
  file.add<int32_t>("short.ids", "I32", {1, 2, 3});
  file.add<float>("short.nll", "F32", {6, 6});
  return file;
}

std::string refusal(const ExpectedFile& file) {
  OwnedContext context({.threads = 1});
  const Result<ExpectedTensors> expected = file.open(context.get());
  EXPECT_FALSE(expected.is_ok());
  return expected.is_ok() ? "" : expected.status().message();
}

TEST(ExpectedTensors, AWellFormedFileIsTaken) {
  OwnedContext context({.threads = 1});
  const Result<ExpectedTensors> expected = small_expectation().open(context.get());
  ASSERT_TRUE(expected.is_ok()) << expected.status().message();
  EXPECT_EQ(expected->labels(), std::vector<std::string>{"short"});
}

TEST(ExpectedTensors, ANameThatNothingChecksIsRefused) {
  for (const std::string name :
       {"typo", "short.logit", "short.layer.0.oot", "short.layer.x.out", "short.layer.01.out",
        "short.layer..out", "short.router.1.gaps", "short.wide_margin", "short.mtp", ".logits",
        "ids", "short.part.ids", "short.layer.99999999999999999999999.out"}) {
    ExpectedFile file = small_expectation();
    file.add<float>(name, "F32", {0});
    EXPECT_NE(refusal(file).find("tensor " + name + " is nothing"), std::string::npos)
        << name << ": " << refusal(file);
  }
}

TEST(ExpectedTensors, ATensorOfALabelWithoutIdsIsRefused) {
  for (const std::string name : {"typo.logits", "shrt.layer.0.out"}) {
    ExpectedFile file = small_expectation();
    file.add<float>(name, "F32", {0});
    EXPECT_NE(refusal(file).find("tensor " + name + " belongs to no token ids"), std::string::npos);
  }
}

TEST(ExpectedTensors, AFileOrALabelThatChecksNothingIsRefused) {
  EXPECT_NE(refusal(ExpectedFile()).find("nothing to verify"), std::string::npos);
  ExpectedFile only_ids;
  only_ids.add<int32_t>("short.ids", "I32", {1, 2});
  EXPECT_NE(refusal(only_ids).find("nothing to compare"), std::string::npos);
  ExpectedFile more = small_expectation();
  more.add<int32_t>("other.ids", "I32", {1, 2});
  more.add<float>("other.greedy_margin", "F32", {1});
  EXPECT_NE(refusal(more).find("ids of other"), std::string::npos);
  ExpectedFile empty = small_expectation();
  empty.add<float>("short.logits", "F32", {});
  EXPECT_NE(refusal(empty).find("tensor short.logits is empty"), std::string::npos);
}

TEST(ExpectedTensors, TypesAndWideNumbersAreRefusedNotNarrowed) {
  ExpectedFile floats;
  floats.add<float>("short.ids", "F32", {1});
  EXPECT_NE(refusal(floats).find("short.ids has type F32"), std::string::npos);
  for (const int64_t wide : {int64_t{1} << 32, -(int64_t{1} << 40)}) {
    ExpectedFile file;
    file.add<int64_t>("short.ids", "I64", {1, wide, 3});
    file.add<float>("short.nll", "F32", {6, 6});
    EXPECT_NE(refusal(file).find(fmt::format("tensor short.ids holds {}", wide)),
              std::string::npos);
  }
}

// As the generator of fresh checkpoints writes them: choices of the last rows, gaps of all.
TEST(ExpectedShapes, GapsMayReachFurtherBackThanTheChoices) {
  OwnedContext context({.threads = 1});
  const std::unique_ptr<Engine> engine = load_tiny(context, exact_with_drafts());
  for (const auto& [rows, fits] : {std::pair{0, false}, {1, true}, {3, true}, {4, false}}) {
    ExpectedFile file = small_expectation();
    const std::string ascending("\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0", 16);
    file.add("short.router.0.experts", "I32", "[1,4]", ascending);
    file.add<float>("short.router.0.gap", "F32", std::vector<float>(static_cast<size_t>(rows), 1));
    const Result<ExpectedTensors> expected = file.open(context.get());
    const bool accepted =
        expected.is_ok() && check_expected_shapes(*expected, "short", engine->spec(), 16).is_ok();
    EXPECT_EQ(accepted, fits) << rows;
  }
}

TEST(ExpectedShapes, NumbersOutsideTheModelAreRefusedByName) {
  OwnedContext context({.threads = 1});
  const std::unique_ptr<Engine> engine = load_tiny(context, exact_with_drafts());
  const auto status = [&](const std::string& name, const std::string& dtype,
                          const std::string& shape, const std::string& bytes) {
    ExpectedFile file = small_expectation();
    file.add(name, dtype, shape, bytes);
    const Result<ExpectedTensors> expected = file.open(context.get());
    EXPECT_TRUE(expected.is_ok()) << name;
    const Status found = check_expected_shapes(*expected, "short", engine->spec(), 16);
    EXPECT_EQ(found.message().find(name) == std::string::npos, found.is_ok());
    return found;
  };
  const auto zeros = [](size_t count) { return std::string(count * sizeof(float), '\0'); };
  const std::string token_512("\0\2\0\0", 4);
  EXPECT_TRUE(status("short.greedy", "I32", "[2]", zeros(2)).is_ok());
  EXPECT_FALSE(status("short.greedy", "I32", "[1]", token_512).is_ok());
  EXPECT_FALSE(status("short.greedy", "I32", "[1,2]", zeros(2)).is_ok());
  EXPECT_FALSE(status("short.mtp.next_token", "I32", "[1]", token_512).is_ok());
  EXPECT_FALSE(status("short.mtp.next_token", "I32", "[2]", zeros(2)).is_ok());
  EXPECT_FALSE(status("short.argmax", "I32", "[3]", token_512 + zeros(2)).is_ok());
  EXPECT_FALSE(status("short.argmax", "I32", "[2]", zeros(2)).is_ok());
  EXPECT_TRUE(status("short.layer.7.out", "F32", "[1,128]", zeros(128)).is_ok());
  EXPECT_FALSE(status("short.layer.8.out", "F32", "[1,128]", zeros(128)).is_ok());
  EXPECT_FALSE(status("short.layer.7.out", "F32", "[4,128]", zeros(512)).is_ok());
  EXPECT_FALSE(status("short.logits", "F32", "[128]", zeros(128)).is_ok());
  EXPECT_FALSE(status("short.mtp.chain_logits", "F32", "[512]", zeros(512)).is_ok());
  EXPECT_FALSE(status("short.router.0.gap", "F32", "[1]", zeros(1)).is_ok());
  EXPECT_FALSE(status("short.argmax_margin", "F32", "[3]", zeros(3)).is_ok());
  const std::string ascending("\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0", 16);
  EXPECT_TRUE(status("short.router.0.experts", "I32", "[1,4]", ascending).is_ok());
  EXPECT_FALSE(status("short.router.8.experts", "I32", "[1,4]", ascending).is_ok());
  EXPECT_FALSE(status("short.router.0.experts", "I32", "[4]", ascending).is_ok());
  EXPECT_FALSE(status("short.router.0.experts", "I32", "[1,4]", zeros(4)).is_ok());
  EXPECT_FALSE(status("short.router.0.experts", "I32", "[1,4]", ascending.substr(0, 12) + token_512)
                   .is_ok());
}

TEST(ExpectedShapes, WhatDoesNotFitTheContextIsRefused) {
  OwnedContext context({.threads = 1});
  const std::unique_ptr<Engine> engine = load_tiny(context, exact_with_drafts());
  const ExpectedTensors expected = small_expectation().open(context.get()).value();
  EXPECT_TRUE(check_expected_shapes(expected, "short", engine->spec(), 3).is_ok());
  EXPECT_NE(check_expected_shapes(expected, "short", engine->spec(), 2).message().find("context"),
            std::string::npos);
}

TEST(VerifyExpected, OneLayerAloneIsCompared) {
  OwnedContext context({.threads = 1});
  const std::unique_ptr<Engine> engine = load_tiny(context, exact_with_drafts());
  TraceRequest request{.prompt = {1, 2, 3}, .layers = true};
  const SequenceTrace trace = trace_sequence(*engine, request).value();
  for (const float wrong : {0.0F, 1.0F}) {
    ExpectedFile file;
    file.add<int32_t>("a.ids", "I32", request.prompt);
    std::vector<float> out = trace.layers[5];
    out[7] += wrong;
    file.add("a.layer.5.out", "F32", "[3,128]",
             std::string(reinterpret_cast<const char*>(out.data()), out.size() * sizeof(float)));
    const ExpectedTensors expected = file.open(context.get()).value();
    const VerifyReport report = verify_expected(*engine, expected, {}).value();
    ASSERT_EQ(report.rows.size(), 1u);
    EXPECT_EQ(report.rows[0].compared, 3 * 128);
    EXPECT_EQ(report.passed(), wrong == 0);
  }
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

TEST(ChoiceTable, CountsChoicesBelowAGap) {
  ChoiceTable table;
  table.set(0, 0, {.chosen = {1, 2}, .gap = 1e-6});
  table.set(0, 1, {.chosen = {1, 2}, .gap = 1e-3});
  table.set(1, 0, {.chosen = {1, 2}, .gap = 0.1});
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
