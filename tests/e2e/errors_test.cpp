// What goes wrong is one line that names the thing, and the right exit status.
#include <gtest/gtest.h>

#include <algorithm>

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
}

TEST(Errors, VariablesAreChecked) {
  expect_error(run({"run", "-p", "x"}, "", {{"MOTLEY_TREADS", "2"}}), 2,
               "MOTLEY_TREADS is not known; did you mean MOTLEY_THREADS?");
  expect_error(run({"run", "-p", "x"}, "", {{"MOTLEY_THREADS", "two"}}), 2, "MOTLEY_THREADS");
}

TEST(Errors, AModelThatCannotBeReadIsNamed) {
  expect_error(run({"run", "/no/such/model", "-p", "x"}), 1, "/no/such/model");
  expect_error(run({"inspect", "/no/such/model"}), 1, "/no/such/model");
  const TemporaryFolder folder;
  folder.write("config.json", R"({"model_type": "unheard_of"})");
  expect_error(run({"inspect", folder.path()}), 1, "unheard_of");
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
