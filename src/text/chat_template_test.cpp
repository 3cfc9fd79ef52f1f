#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "text/jinja_test_util.h"

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kShared = MOTLEY_SOURCE_DIR "/../shared";

// Empty when the file is not there.
std::string read_file(std::string_view name) {
  std::ifstream file(std::filesystem::path(kShared) / name, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Json user(std::string_view text) {
  return {{"role", "user"}, {"content", text}};
}
Json assistant(std::string_view text) {
  return {{"role", "assistant"}, {"content", text}};
}

// Takes a rendered chat of the pocket models apart again, as messages and tools.
class ChatReader {
 public:
  explicit ChatReader(std::string text) : text_(std::move(text)) {}

  Json read() {
    Json context = {{"messages", Json::array()}};
    for (std::size_t at = 0; at < text_.size();) {
      const std::size_t role_at = at + kStart.size();
      const std::size_t role_end = text_.find('\n', role_at);
      const std::size_t end = text_.find(kEnd, role_end);
      add(context, text_.substr(role_at, role_end - role_at),
          text_.substr(role_end + 1, end - role_end - 1));
      at = end + kEnd.size();
    }
    return context;
  }

 private:
  static constexpr std::string_view kStart = "<|im_start|>";
  static constexpr std::string_view kEnd = "<|im_end|>\n";

  static std::string between(const std::string& text, std::string_view open, std::string_view close,
                             std::size_t& at) {
    const std::size_t begin = text.find(open, at);
    if (begin == std::string::npos) return {};
    at = text.find(close, begin + open.size());
    return text.substr(begin + open.size(), at - begin - open.size());
  }

  static void add(Json& context, const std::string& role, const std::string& body) {
    std::size_t at = 0;
    if (role == "system") {
      at = body.find("tags:\n<tools>\n") + 5;
      std::stringstream tools(between(body, "<tools>\n", "\n</tools>", at));
      for (std::string line; std::getline(tools, line);) {
        context["tools"].push_back(Json::parse(line));
      }
    } else if (role == "user" && body.starts_with("\n<tool_response>")) {
      ADD_FAILURE() << "a tool result starts after its role line";
    } else if (role == "user" && body.starts_with("<tool_response>\n")) {
      const std::string result = between(body, "<tool_response>\n", "\n</tool_response>", at);
      context["messages"].push_back({{"role", "tool"}, {"content", result}});
    } else if (role == "assistant" && body.starts_with("<tool_call>\n")) {
      Json message = {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array()}};
      for (;;) {
        const std::string call = between(body, "<tool_call>\n", "\n</tool_call>", at);
        if (call.empty()) break;
        message["tool_calls"].push_back({{"type", "function"}, {"function", Json::parse(call)}});
      }
      context["messages"].push_back(message);
    } else {
      context["messages"].push_back({{"role", role}, {"content", body}});
    }
  }

  std::string text_;
};

TEST(ChatTemplate, PocketChatsComeBackExactly) {
  const std::string source = read_file("models/pocket-qwen35/chat_template.jinja");
  const std::string chats_text = read_file("models/chats.json");
  if (source.empty() || chats_text.empty()) GTEST_SKIP() << "no pocket models at " << kShared;
  const Result<ChatTemplate> made = ChatTemplate::parse(source);
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  int with_tools = 0;
  const Json chats = Json::parse(chats_text);
  ASSERT_EQ(chats.size(), 18U);
  for (const Json& chat : chats) {
    const std::string text = chat.get<std::string>();
    const Json context = ChatReader(text).read();
    with_tools += context.contains("tools") ? 1 : 0;
    const Result<std::string> output = made.value().render(context);
    ASSERT_TRUE(output.is_ok()) << output.status().message();
    EXPECT_EQ(*output, text);
  }
  EXPECT_EQ(with_tools, 3);
}

TEST(ChatTemplate, PocketPromptEndsInTheAssistantHeader) {
  const std::string source = read_file("models/pocket-qwen35/chat_template.jinja");
  if (source.empty()) GTEST_SKIP() << "no pocket models at " << kShared;
  const Result<ChatTemplate> made = ChatTemplate::parse(source);
  ASSERT_TRUE(made.is_ok());
  const Json context = {{"messages", {user("Explain the word kudu.")}},
                        {"add_generation_prompt", true}};
  EXPECT_EQ(*made.value().render(context),
            "<|im_start|>user\nExplain the word kudu.<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, RealTemplatesRender) {
  struct Case {
    std::string_view file;
    std::string_view with_thinking;
    std::string_view without;
  };
  const Case cases[] = {
      {"templates/qwen3.5.jinja",
       "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n",
       "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"},
      {"templates/glm-4.6.jinja", "[gMASK]<sop><|user|>\nHi<|assistant|>",
       "[gMASK]<sop><|user|>\nHi/nothink<|assistant|>\n<think></think>"},
      {"templates/kimi-k2-thinking.jinja",
       "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot "
       "AI.<|im_end|><|im_user|>user<|im_middle|>Hi<|im_end|><|im_assistant|>assistant"
       "<|im_middle|>",
       "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot "
       "AI.<|im_end|><|im_user|>user<|im_middle|>Hi<|im_end|><|im_assistant|>assistant"
       "<|im_middle|>"},
  };
  for (const Case& test : cases) {
    const std::string source = read_file(test.file);
    if (source.empty()) GTEST_SKIP() << "no templates at " << kShared;
    const Result<ChatTemplate> made = ChatTemplate::parse(source);
    ASSERT_TRUE(made.is_ok()) << made.status().message();
    Json context = {{"messages", {user("Hi")}}, {"add_generation_prompt", true}};
    EXPECT_EQ(*made.value().render(context), test.with_thinking) << test.file;
    context["enable_thinking"] = false;
    EXPECT_EQ(*made.value().render(context), test.without) << test.file;
    EXPECT_TRUE(made.value().refers_to("tools")) << test.file;
    EXPECT_TRUE(made.value().refers_to("tool_calls")) << test.file;
    EXPECT_TRUE(made.value().refers_to("reasoning_content")) << test.file;
    EXPECT_TRUE(made.value().refers_to("add_generation_prompt")) << test.file;
  }
}

TEST(ChatTemplate, RefusalOfARealTemplateNamesTheLine) {
  const std::string source = read_file("templates/qwen3.5.jinja");
  if (source.empty()) GTEST_SKIP() << "no templates at " << kShared;
  const Result<ChatTemplate> made = ChatTemplate::parse(source);
  ASSERT_TRUE(made.is_ok());
  const Result<std::string> output = made.value().render({{"messages", Json::array()}});
  ASSERT_FALSE(output.is_ok());
  EXPECT_EQ(output.status().message(), "line 43: the template refuses: No messages provided.");
  EXPECT_EQ(output.status().code(), StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, KeepsTheOrderOfTools) {
  const Result<ChatTemplate> made = ChatTemplate::parse("{{ tools | tojson }}");
  ASSERT_TRUE(made.is_ok());
  const std::string tools = R"([{"type": "f", "name": "é", "a": {"z": 1, "b": [1.0, null]}}])";
  EXPECT_EQ(*made.value().render({{"tools", Json::parse(tools)}}), tools);
}

TEST(ChatTemplate, Facts) {
  const Result<ChatTemplate> made = ChatTemplate::parse(
      "{% if not flag is defined %}{% set flag = false %}{% endif %}"
      "{% for m in messages %}{{ m.role ~ m['content'] ~ m.get('name') ~ loop.index }}"
      "{% if 'image' in m %}{% endif %}{% endfor %}"
      "{% macro f(a) %}{{ a ~ b }}{% endmacro %}{{ f(range(2)) }}{% set own = 1 %}{{ own }}");
  ASSERT_TRUE(made.is_ok());
  EXPECT_EQ(made.value().variables(), (std::vector<std::string>{"b", "flag", "messages"}));
  EXPECT_EQ(made.value().fields(),
            (std::vector<std::string>{"content", "get", "image", "index", "name", "role"}));
  EXPECT_TRUE(made.value().refers_to("content"));
  EXPECT_FALSE(made.value().refers_to("enable_thinking"));
}

TEST(ChatTemplate, BrokenTextIsRefused) {
  EXPECT_EQ(ChatTemplate::parse("a\xFF").status().message(), "the template is not valid UTF-8");
  const Result<ChatTemplate> made = ChatTemplate::parse("{{ x }}");
  ASSERT_TRUE(made.is_ok());
  EXPECT_EQ(made.value().render({{"x", "a\xFF"}}).status().message(),
            "line 1: a text in the data is not valid UTF-8");
}

TEST(ChatTemplate, ManyThreadsRenderOne) {
  const Result<ChatTemplate> made = ChatTemplate::parse(
      "{% macro m(x) %}[{{ x }}]{% endmacro %}{% set ns = namespace(t=0) %}"
      "{% for x in messages %}{% set ns.t = ns.t + x %}{{ m(x) }}{% endfor %}{{ ns.t }}");
  ASSERT_TRUE(made.is_ok());
  const Json context = {{"messages", {1, 2, 3}}};
  std::vector<std::string> outputs(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& output : outputs) {
      threads.emplace_back([&output, &made, &context] {
        for (int i = 0; i < 50; ++i) output = *made.value().render(context);
      });
    }
  }
  for (const std::string& output : outputs) EXPECT_EQ(output, "[1][2][3]6");
}

TEST(ChatTemplate, LongConversationsAreWithinTheLimits) {
  const std::string source = read_file("templates/qwen3.5.jinja");
  if (source.empty()) GTEST_SKIP() << "no templates at " << kShared;
  const Result<ChatTemplate> made = ChatTemplate::parse(source);
  ASSERT_TRUE(made.is_ok());
  Json messages = Json::array();
  for (int i = 0; i < 1'000; ++i) {
    messages.push_back(user("question " + std::to_string(i) + std::string(1'500, 'x')));
    messages.push_back(assistant(std::string(1'500, 'y')));
  }
  const Result<std::string> output =
      made.value().render({{"messages", messages}, {"add_generation_prompt", true}});
  ASSERT_TRUE(output.is_ok()) << output.status().message();
  EXPECT_GT(output->size(), 3'000'000U);
}

}  // namespace
}  // namespace motley
