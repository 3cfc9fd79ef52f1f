#include "cli/conversation.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

std::string pocket() {
  return std::string(MOTLEY_SOURCE_DIR) + "/models/pocket";
}

TEST(Conversation, KeepsMessagesInOrder) {
  Conversation conversation("Be brief.");
  conversation.add_user("Hi");
  conversation.add_assistant("Hello.");
  EXPECT_EQ(conversation.messages().dump(),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},)"
            R"({"role":"assistant","content":"Hello."}])");
  conversation.drop_last();
  EXPECT_EQ(conversation.size(), 1U);
  conversation.clear();
  EXPECT_EQ(conversation.messages().dump(), R"([{"role":"system","content":"Be brief."}])");
}

TEST(Conversation, RendersWithTheModelsTemplate) {
  const Result<TextModel> model = load_text_model(pocket());
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  Conversation conversation;
  conversation.add_user("Hi");
  const auto tokens = conversation.encode(*model, std::nullopt);
  ASSERT_TRUE(tokens.is_ok()) << tokens.status().message();
  EXPECT_EQ(model->tokenizer.decode(*tokens, false),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(conversation.encode(*model, true).status().message(),
            "the chat template has no switch for reasoning; leave out --think");
}

TEST(TextModel, StopTokensJoinBothSources) {
  const Result<TextModel> model = load_text_model(pocket());
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  const TokenId end = *model->tokenizer.token_id("<|im_end|>");
  EXPECT_EQ(model->stop_tokens(std::vector<int32_t>{5}), (std::vector<TokenId>{5, end}));
  EXPECT_EQ(model->stop_tokens(std::vector<int32_t>{end}), (std::vector<TokenId>{end}));
}

TEST(Conversation, ATemplateThatRendersNothingIsNamed) {
  Result<TextModel> model = load_text_model(pocket());
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  model->chat_template.emplace(ChatTemplate::parse("{# nothing #}").value());
  Conversation conversation;
  conversation.add_user("Hi");
  const std::string message = conversation.encode(*model, std::nullopt).status().message();
  EXPECT_NE(message.find(pocket() + "/"), std::string::npos) << message;
  EXPECT_NE(message.find("the chat template rendered nothing"), std::string::npos) << message;
}

}  // namespace
}  // namespace motley
