// Conversions that are stopped or run out of room leave nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "e2e/process.h"

namespace motley::e2e {
namespace {

using ::testing::HasSubstr;

// Large enough that writing takes seconds.
std::string large_config(const TemporaryFolder& folder) {
  std::string text =
      read_file(std::string(MOTLEY_SOURCE_DIR) + "/tests/fixtures/tiny-qwen35/config.json");
  const std::string key = "\"vocab_size\": ";
  const size_t at = text.find(key);
  EXPECT_NE(at, std::string::npos);
  const size_t begin = at + key.size();
  text.replace(begin, text.find_first_not_of("0123456789", begin) - begin, "600000");
  return folder.write("config.json", text);
}

TEST(Convert, CtrlCAndTerminationLeaveNothing) {
  const TemporaryFolder folder;
  const std::string config = large_config(folder);
  const std::string out = folder.path() + "/out";
  for (const int signal : {SIGINT, SIGTERM}) {
    Terminal program({"synth", "--config", config, "--format", "bf16", out});
    for (int i = 0; i < 20'000 && !exists(out + "/.motley-lock"); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(kill(program.process(), signal), 0);
    EXPECT_EQ(program.finish(), 130) << program.screen();
    EXPECT_THAT(program.screen(), HasSubstr("stopped; nothing was kept"));
    EXPECT_FALSE(exists(out));
  }
}

TEST(Convert, AFileOverTheLimitIsALineAndLeavesNothing) {
  const TemporaryFolder folder;
  const std::string out = folder.path() + "/out";
  RunOptions options;
  options.program = "/bin/sh";
  const Outcome outcome = run_with({"-c", "ulimit -f 64; exec \"$0\" quantize \"$1\" \"$2\"",
                                    MOTLEY_PROGRAM, pocket_model(), out},
                                   options);
  EXPECT_EQ(outcome.exit, 1);
  EXPECT_THAT(outcome.err, HasSubstr("File too large"));
  EXPECT_FALSE(exists(out));
  EXPECT_EQ(run({"quantize", pocket_model(), out}).exit, 0);
  EXPECT_TRUE(exists(out + "/tokenizer.json"));
}

}  // namespace
}  // namespace motley::e2e
