#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <thread>
#include <vector>

namespace motley {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Log, WritesOneLineWithLevelAndArguments) {
  std::ostringstream stream;
  const Logger log({LogLevel::kInfo, &stream});
  log.info("read {} tensors from {}", 3, "a.safetensors");
  EXPECT_THAT(stream.str(), EndsWith(" info read 3 tensors from a.safetensors\n"));
}

TEST(Log, LevelsBelowTheSetOneAreDropped) {
  std::ostringstream stream;
  const Logger log({LogLevel::kWarning, &stream});
  log.debug("a");
  log.info("b");
  EXPECT_EQ(stream.str(), "");
  log.warning("c");
  log.error("d");
  EXPECT_THAT(stream.str(), HasSubstr(" error d\n"));
  EXPECT_FALSE(log.enabled(LogLevel::kInfo));
  EXPECT_TRUE(log.enabled(LogLevel::kError));
}

TEST(Log, OffPrintsNothing) {
  std::ostringstream stream;
  const Logger log({LogLevel::kOff, &stream});
  log.error("x");
  EXPECT_EQ(stream.str(), "");
}

TEST(Log, UserTextAppearsAtDebugOnly) {
  std::ostringstream stream;
  const Logger info({LogLevel::kInfo, &stream});
  info.user_text("prompt", "my secret");
  EXPECT_EQ(stream.str(), "");
  const Logger debug({LogLevel::kDebug, &stream});
  debug.user_text("prompt", "my secret");
  EXPECT_THAT(stream.str(), HasSubstr("debug prompt: my secret"));
}

TEST(Log, InputCannotForgeALineOrMoveTheCursor) {
  std::ostringstream stream;
  const Logger log({LogLevel::kInfo, &stream});
  log.info("name {}", "x\n2026-01-01 error forged\x1b[2J\r");
  const std::string text = stream.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, HasSubstr("x\\n2026-01-01 error forged\\x1b[2J\\r"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Log, EscapingKeepsTextInAnyScript) {
  EXPECT_EQ(escape_control_characters("na\u00efve \u4e2d\u6587"), "na\u00efve \u4e2d\u6587");
  EXPECT_EQ(escape_control_characters(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
}

TEST(Log, LongInputIsCutBetweenCharacters) {
  EXPECT_EQ(quote_input("a\n"), "a\\n");
  EXPECT_EQ(quote_input(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(quote_input(std::string(201, 'x')), std::string(200, 'x') + "...");
  const std::string three = "\u4e2d";
  for (size_t before = 196; before <= 200; ++before) {
    const std::string quoted = quote_input(std::string(before, 'x') + three + std::string(9, 'y'));
    const size_t kept = before + 3 <= 200 ? 200 : before;
    EXPECT_EQ(quoted.size(), kept + 3) << before;
  }
  EXPECT_EQ(quote_input(std::string(300, '\x80')).size(), 200U);  // no text at all
}

TEST(Log, LevelNames) {
  EXPECT_EQ(parse_log_level("warning").value(), LogLevel::kWarning);
  EXPECT_THAT(parse_log_level("loud").status().message(), HasSubstr("'loud' is unknown"));
}

TEST(Log, ThreadsDoNotMixTheirLines) {
  std::ostringstream stream;
  const Logger log({LogLevel::kInfo, &stream});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log] {
      for (int i = 0; i < 50; ++i) log.info("0123456789");
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::istringstream lines(stream.str());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_THAT(line, EndsWith(" info 0123456789"));
  }
  EXPECT_EQ(count, 200);
}

}  // namespace
}  // namespace motley
