#include "cli/program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

namespace motley {
namespace {

const OptionSpec kCount = {
    .name = "count", .type = OptionType::kInteger, .value = "N", .help = "how often", .least = 0};

Result<int> run_echo(Invocation& invocation) {
  if (!invocation.options.given(kCount)) return invalid_argument("nothing\nto count");
  invocation.console.out(std::to_string(invocation.options.integer(kCount)));
  return invocation.options.integer(kCount) == 7 ? kExitInterrupted : kExitOk;
}

Status check_echo(const Invocation& invocation) {
  if (invocation.options.given(kCount) && invocation.options.integer(kCount) == 13) {
    return invalid_argument("not 13");
  }
  return Status::ok();
}

Result<int> run_nothing(Invocation&) {
  return kExitOk;
}

struct Outcome {
  int exit = 0;
  std::string out;
  std::string err;
};

Outcome run(const std::vector<std::string>& words, const Environment& environment = {}) {
  const std::vector<VerbSpec> verbs = {{.name = "echo",
                                        .summary = "says a number",
                                        .options = {kCount},
                                        .check = check_echo,
                                        .run = run_echo},
                                       {.name = "bench model", .summary = "x", .run = run_nothing},
                                       {.name = "plain", .summary = "y", .run = run_nothing}};
  int out[2];
  int err[2];
  EXPECT_EQ(::pipe(out), 0);
  EXPECT_EQ(::pipe(err), 0);
  Outcome outcome;
  Console console({.in = 0, .out = out[1], .err = err[1]});
  outcome.exit = run_program(words, environment, verbs, console);
  ::close(out[1]);
  ::close(err[1]);
  outcome.out = read_stream(out[0], 1 << 20, "out").value();
  outcome.err = read_stream(err[0], 1 << 20, "err").value();
  ::close(out[0]);
  ::close(err[0]);
  return outcome;
}

TEST(Program, RunsAVerb) {
  const Outcome outcome = run({"echo", "--count", "3"});
  EXPECT_EQ(outcome.exit, 0);
  EXPECT_EQ(outcome.out, "3");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(run({"echo", "--count", "7"}).exit, 130);
  EXPECT_EQ(run({"bench", "model"}).exit, 0);
}

TEST(Program, TakesOptionsFromTheEnvironment) {
  EXPECT_EQ(run({"echo"}, {{"MOTLEY_COUNT", "5"}}).out, "5");
  EXPECT_EQ(run({"echo", "--count", "3"}, {{"MOTLEY_COUNT", "5"}}).out, "3");
  const Outcome unknown = run({"echo", "--count", "3"}, {{"MOTLEY_CUONT", "5"}});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_EQ(unknown.err,
            "motley: environment variable MOTLEY_CUONT is not known; did you mean "
            "MOTLEY_COUNT?\n");
  // Completion and manual page must work in any environment.
  EXPECT_EQ(run({"plain"}, {{"MOTLEY_CUONT", "5"}}).exit, 0);
}

TEST(Program, AFailureIsOneLineAndExitOne) {
  const Outcome outcome = run({"echo"});
  EXPECT_EQ(outcome.exit, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "motley: nothing\\nto count\n");
}

TEST(Program, WrongUsageIsExitTwo) {
  EXPECT_EQ(run({"echo", "--count", "13"}).err, "motley: not 13\n");
  EXPECT_EQ(run({"echo", "--count", "13"}).exit, 2);
  EXPECT_EQ(run({"echo", "--count", "x"}).exit, 2);
  EXPECT_EQ(run({"ehco"}).exit, 2);
  EXPECT_EQ(run({"ehco"}).err,
            "motley: unknown verb \"ehco\"; did you mean echo?; \"motley help\" lists them\n");
  EXPECT_EQ(run({"bench"}).err, "motley: \"bench\" needs a subject: bench model\n");
  EXPECT_EQ(run({"--count", "3", "echo"}).err,
            "motley: --count comes before a verb; write motley VERB --count\n");
  EXPECT_EQ(run({}).exit, 2);
  EXPECT_EQ(run({}).out, "");
}

TEST(Program, HelpAndVersionGoToStandardOutput) {
  EXPECT_NE(run({"--version"}).out.find("motley "), std::string::npos);
  EXPECT_NE(run({"help"}).out.find("says a number"), std::string::npos);
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_EQ(run({"help", "echo"}).out, run({"echo", "--help"}).out);
  EXPECT_NE(run({"help", "bench", "model"}).out.find("motley bench model"), std::string::npos);
  EXPECT_EQ(run({"help", "nothing"}).exit, 2);
  EXPECT_EQ(run({"help", "bench"}).exit, 0);
  EXPECT_NE(run({"help", "bench"}).out.find("bench model  "), std::string::npos);
  EXPECT_EQ(run({"bench", "--help"}).out, run({"help", "bench"}).out);
  EXPECT_EQ(run({"bench", "-h"}).exit, 0);
  EXPECT_EQ(run({"help", "bench", "nothing"}).exit, 2);
  EXPECT_LT(run({std::string(100'000, 'v')}).err.size(), 300U);
}

}  // namespace
}  // namespace motley
