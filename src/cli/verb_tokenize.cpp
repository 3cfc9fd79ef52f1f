// motley tokenize: text to token ids and back.
#include <fmt/format.h>

#include "base/log.h"
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

const OptionSpec kText = {.name = "text",
                          .letter = 't',
                          .type = OptionType::kText,
                          .value = "TEXT",
                          .help = "the text",
                          .default_note = "standard input"};
const OptionSpec kDecode = {.name = "decode",
                            .help =
                                "the other way: the text is token ids, separated by spaces, "
                                "commas or newlines"};
const OptionSpec kPlain = {.name = "plain",
                           .help = "special tokens in the text are ordinary characters"};
const OptionSpec kIds = {.name = "ids", .help = "print the ids alone, on one line"};

Status check_tokenize(const Invocation& invocation) {
  const OptionValues& values = invocation.options;
  if (values.given(kText) && values.given(kFile)) {
    return invalid_argument("give --text or --file, not both");
  }
  if (values.flag(kDecode)) {
    for (const OptionSpec* option : {&kPlain, &kIds}) {
      if (values.given(*option)) {
        return invalid_argument(
            fmt::format("{} has no effect with --decode", values.source(*option)));
      }
    }
  }
  return Status::ok();
}

Result<std::string> input_text(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  if (values.given(kText)) return values.text(kText);
  if (values.given(kFile) && values.text(kFile) != "-") {
    return read_input_file(values.text(kFile), kMaxEncodeBytes);
  }
  return read_stream(invocation.console.in_descriptor(), kMaxEncodeBytes, "standard input");
}

Result<std::vector<TokenId>> read_ids(std::string_view text) {
  std::vector<TokenId> ids;
  constexpr std::string_view kSeparators = " \t\r\n,[]";
  size_t at = 0;
  while ((at = text.find_first_not_of(kSeparators, at)) != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const auto id = parse_integer(word);
    if (!id || *id < 0 || *id >= kTokenIdLimit) {
      return invalid_argument(fmt::format("\"{}\" is no token id", quote_input(word)));
    }
    ids.push_back(static_cast<TokenId>(*id));
    at = end;
  }
  return ids;
}

std::string table_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string table;
  for (const TokenId id : ids) {
    const char* kind = tokenizer.is_special(id) ? "special" : tokenizer.is_added(id) ? "added" : "";
    table += fmt::format("{:>8}  {}{}{}\n", id,
                         nlohmann::json(tokenizer.token_bytes(id))
                             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                         *kind == 0 ? "" : "  ", kind);
  }
  return table;
}

std::string json_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                    const std::string& text) {
  nlohmann::ordered_json pieces = nlohmann::ordered_json::array();
  for (const TokenId id : ids) pieces.push_back(tokenizer.token_bytes(id));
  return dump_json({{"ids", ids}, {"pieces", std::move(pieces)}, {"text", text}});
}

Result<int> run_tokenize(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  MOTLEY_ASSIGN_OR_RETURN(const std::string model, find_model(values));
  MOTLEY_ASSIGN_OR_RETURN(const TextModel text_model, load_text_model(model));
  const Tokenizer& tokenizer = text_model.tokenizer;
  MOTLEY_ASSIGN_OR_RETURN(std::string text, input_text(invocation));
  std::vector<TokenId> ids;
  if (values.flag(kDecode)) {
    MOTLEY_ASSIGN_OR_RETURN(ids, read_ids(text));
    text = tokenizer.decode(ids, /*skip_special=*/false);
  } else {
    EncodeOptions encode;
    encode.parse_special = !values.flag(kPlain);
    MOTLEY_ASSIGN_OR_RETURN(ids, text_model.encode(text, encode));
  }
  if (values.flag(kJson)) {
    invocation.console.out(json_of(tokenizer, ids, text));
  } else if (values.flag(kDecode)) {
    invocation.console.out(text);
  } else if (values.flag(kIds)) {
    invocation.console.out(fmt::format("{}\n", fmt::join(ids, " ")));
  } else {
    invocation.console.out(table_of(tokenizer, ids));
    invocation.console.err(fmt::format("{} tokens\n", ids.size()));
  }
  return kExitOk;
}

}  // namespace

VerbSpec tokenize_verb() {
  return {.name = "tokenize",
          .summary = "show the tokens of a text, or the text of tokens",
          .description =
              "Prints one token a line: its id and the text it stands for. Special "
              "tokens in the text are recognised, as in prompts.",
          .arguments = {{.name = "MODEL",
                         .type = OptionType::kFolder,
                         .help = "model directory (default: the pocket model, see --pocket)",
                         .required = false}},
          .options = {kText, kFile, kDecode, kPlain, kIds, kJson, kPocket},
          .examples = {{"motley tokenize models/pocket --text 'Hello world'", "ids and pieces"},
                       {"motley tokenize models/pocket -f notes.txt --ids", "the ids on one line"},
                       {"echo 72 101 | motley tokenize models/pocket --decode", "back to text"}},
          .check = check_tokenize,
          .run = run_tokenize};
}

}  // namespace motley
