// motley template: the prompt that a list of messages renders to.
#include <fmt/format.h>

#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/model_options.h"
#include "cli/option_values.h"
#include "cli/verbs.h"
#include "text/text_model.h"

namespace motley {
namespace {

using namespace options;

constexpr size_t kMaxMessagesBytes = size_t{64} << 20;

const OptionSpec kTools = {.name = "tools",
                           .type = OptionType::kFile,
                           .value = "FILE",
                           .help = "JSON file with the list of tools that the model may call"};
const OptionSpec kNoGenerationPrompt = {.name = "no-generation-prompt",
                                        .help =
                                            "end after the last message, without the header of "
                                            "the next answer"};

Result<nlohmann::ordered_json> read_json_list(const std::string& path, std::string_view field,
                                              const Console& console) {
  Result<std::string> text =
      path == "-" ? read_stream(console.in_descriptor(), kMaxMessagesBytes, "standard input")
                  : read_input_file(path, kMaxMessagesBytes);
  if (!text.is_ok()) return text.status();
  const std::string name = path == "-" ? "standard input" : path;
  MOTLEY_ASSIGN_OR_RETURN(nlohmann::ordered_json json, parse_json_text(*text, name));
  // A whole request is accepted as well.
  if (json.is_object() && json.contains(field)) json = json[std::string(field)];
  if (json.is_array()) return json;
  return corrupt(fmt::format("{}: neither a list nor an object with \"{}\"", name, field));
}

Result<int> run_template(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  const std::string path = *values.argument("MESSAGES");
  MOTLEY_ASSIGN_OR_RETURN(const nlohmann::ordered_json messages,
                          read_json_list(path, "messages", invocation.console));
  MOTLEY_ASSIGN_OR_RETURN(const std::string directory, find_model(values));
  MOTLEY_ASSIGN_OR_RETURN(const TextModel model, load_text_model(directory));
  ChatRequest request;
  request.messages = &messages;
  nlohmann::ordered_json tools;
  if (values.given(kTools)) {
    MOTLEY_ASSIGN_OR_RETURN(tools,
                            read_json_list(values.text(kTools), "tools", invocation.console));
    request.tools = &tools;
  }
  request.add_generation_prompt = !values.flag(kNoGenerationPrompt);
  if (values.given(kThink)) request.think = values.text(kThink) == "on";
  MOTLEY_ASSIGN_OR_RETURN(const std::string text, render_chat(model, request));
  if (values.flag(kJson)) {
    MOTLEY_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, model.encode_prompt(text, true));
    invocation.console.out(dump_json({{"text", text}, {"ids", ids}}));
  } else {
    invocation.console.out(text);
  }
  return kExitOk;
}

}  // namespace

VerbSpec template_verb() {
  return {
      .name = "template",
      .summary = "render messages with a model's chat template",
      .description =
          "MESSAGES is a JSON file: a list of messages ({\"role\": ..., \"content\": ...}), "
          "or an object with \"messages\". Prints the prompt exactly, without a newline of "
          "its own.",
      .arguments = {{.name = "MESSAGES",
                     .type = OptionType::kFile,
                     .help = "JSON file with the messages, - for standard input"},
                    {.name = "MODEL",
                     .type = OptionType::kFolder,
                     .help = "model directory (default: the pocket model, see --pocket)",
                     .required = false}},
      .options = {kTools, kNoGenerationPrompt, kThink, kJson, kPocket},
      .examples = {{"motley template chat.json models/pocket", "the prompt as the model sees it"},
                   {"motley template chat.json models/pocket --tools tools.json --json",
                    "with tools; text and token ids"}},
      .run = run_template};
}

}  // namespace motley
