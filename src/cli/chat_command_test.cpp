#include "cli/chat_command.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(ChatCommand, KnowsACommandByItsSlash) {
  EXPECT_TRUE(is_chat_command("/help"));
  EXPECT_FALSE(is_chat_command("what does /help do?"));
  EXPECT_FALSE(is_chat_command(""));
}

TEST(ChatCommand, ParsesNameAndArgument) {
  EXPECT_EQ(parse_chat_command("/quit")->kind, ChatCommandKind::kQuit);
  const auto system = parse_chat_command("/system  Be brief.\nAnd kind. ");
  ASSERT_TRUE(system.is_ok());
  EXPECT_EQ(system->kind, ChatCommandKind::kSystem);
  EXPECT_EQ(system->argument, "Be brief.\nAnd kind.");
  EXPECT_EQ(parse_chat_command("/system")->argument, "");
  EXPECT_EQ(parse_chat_command("/save a b.json")->argument, "a b.json");
}

TEST(ChatCommand, ErrorsSuggestAndExplain) {
  EXPECT_EQ(parse_chat_command("/clera").status().message(),
            "unknown command /clera; did you mean /clear?; /help lists them");
  EXPECT_EQ(parse_chat_command("/save").status().message(), "/save needs FILE");
  EXPECT_EQ(parse_chat_command("/stats now").status().message(), "/stats takes no argument");
}

TEST(ChatCommand, HelpListsEveryCommand) {
  for (const char* name : {"/help", "/clear", "/system", "/save", "/stats", "/quit"}) {
    EXPECT_NE(chat_command_help().find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace motley
