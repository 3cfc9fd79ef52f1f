// The chat on a pseudo terminal.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include "e2e/process.h"

namespace motley::e2e {
namespace {

const char* const kReady = "/help lists the commands";
const char* const kPrompt = "\x1b[1;36m>\x1b[0m ";

class Chat : public ::testing::Test {
 protected:
  Variables variables() const { return {{"XDG_STATE_HOME", home.path()}, {"LC_ALL", "C.UTF-8"}}; }
  std::vector<std::string> words(std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"run", pocket_model()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  TemporaryFolder home;
};

TEST_F(Chat, AnswersKeepsStateAndQuits) {
  Terminal terminal(words({"--verbose", "-n", "40"}), variables());
  ASSERT_TRUE(terminal.wait_for(kReady)) << terminal.screen();
  terminal.type("Who are you?\n");
  ASSERT_TRUE(terminal.wait_for("rebuild: 0 tokens kept")) << terminal.screen();
  ASSERT_TRUE(terminal.wait_for("; decode ")) << terminal.screen();
  terminal.type("And again?\n");
  ASSERT_TRUE(terminal.wait_for("extend: ")) << terminal.screen();
  ASSERT_TRUE(terminal.wait_for("; decode ")) << terminal.screen();
  terminal.type("/stats\n");
  ASSERT_TRUE(terminal.wait_for("2 answers")) << terminal.screen();
  terminal.type("/quit\n");
  EXPECT_EQ(terminal.finish(), 0) << terminal.screen();
}

TEST_F(Chat, CommandsAndHistory) {
  const std::string saved = home.path() + "/chat.json";
  Terminal terminal(words({"-n", "4"}), variables());
  ASSERT_TRUE(terminal.wait_for(kReady)) << terminal.screen();
  terminal.type("/system Be brief.\n");
  ASSERT_TRUE(terminal.wait_for("system message: Be brief.")) << terminal.screen();
  terminal.type("first line\\\nsecond line\n");
  ASSERT_TRUE(terminal.wait_for("; decode ")) << terminal.screen();
  terminal.type("/save " + saved + "\n");
  ASSERT_TRUE(terminal.wait_for("3 messages in")) << terminal.screen();
  terminal.type("/clera\n");
  ASSERT_TRUE(terminal.wait_for("did you mean /clear?")) << terminal.screen();
  ASSERT_TRUE(terminal.wait_for(kPrompt)) << terminal.screen();
  terminal.type("\x04");  // Ctrl-D
  EXPECT_EQ(terminal.finish(), 0) << terminal.screen();
  EXPECT_NE(read_file(saved).find("first line\\nsecond line"), std::string::npos);
  EXPECT_NE(read_file(saved).find("Be brief."), std::string::npos);
  struct stat status{};
  ASSERT_EQ(stat((home.path() + "/motley/history").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(Chat, CtrlCStopsAnAnswerAndTheChatGoesOn) {
  const char* const kRequest = "Tell me a long story.";
  const std::string start = run({"run", pocket_model(), "-p", kRequest, "-n", "2"}).out;
  ASSERT_GT(start.size(), 4U);
  Terminal terminal(words({"--ignore-eos", "--threads", "1"}), variables());
  ASSERT_TRUE(terminal.wait_for(kReady)) << terminal.screen();
  terminal.type(std::string(kRequest) + "\n");
  ASSERT_TRUE(terminal.wait_for(start.substr(0, 4))) << terminal.screen();
  kill(terminal.process(), SIGINT);
  ASSERT_TRUE(terminal.wait_for("(stopped)")) << terminal.screen();
  terminal.type("/stats\n");
  ASSERT_TRUE(terminal.wait_for("1 answers")) << terminal.screen();
  ASSERT_TRUE(terminal.wait_for(kPrompt)) << terminal.screen();
  terminal.type("\x03");  // Ctrl-C at the prompt
  ASSERT_TRUE(terminal.wait_for("Ctrl-C again")) << terminal.screen();
  ASSERT_TRUE(terminal.wait_for(kPrompt)) << terminal.screen();
  terminal.type("\x03");
  EXPECT_EQ(terminal.finish(), 0) << terminal.screen();
}

TEST_F(Chat, NoColorIsHonoured) {
  Variables plain = variables();
  plain.emplace_back("NO_COLOR", "1");
  Terminal terminal(words({"-n", "2"}), plain);
  ASSERT_TRUE(terminal.wait_for(kReady)) << terminal.screen();
  terminal.type("Hi\n");
  ASSERT_TRUE(terminal.wait_for("; decode ")) << terminal.screen();
  terminal.type("/quit\n");
  EXPECT_EQ(terminal.finish(), 0);
  EXPECT_EQ(terminal.screen().find("\x1b[1;36m"), std::string::npos);
  EXPECT_EQ(terminal.screen().find("\x1b[2m"), std::string::npos);
}

}  // namespace
}  // namespace motley::e2e
