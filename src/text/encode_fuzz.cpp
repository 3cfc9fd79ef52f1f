// Texts through a small tokenizer: decode(encode(x)) is x with ill-formed parts replaced, and the
// incremental detokenizer gives the same.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/test_tokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

motley::Tokenizer make_tokenizer() {
  nlohmann::json json =
      motley::test_tokenizer_json({{"a", "a"}, {"aa", "a"}, {"a", "b"}, {" ", "a"}, {"aa", "aa"}});
  json["added_tokens"] = {motley::test_added_token(300, "<|end|>"),
                          motley::test_added_token(301, "<|e", false)};
  const nlohmann::json split = {
      {"type", "Split"},
      {"pattern",
       {{"Regex",
         "(?i:'s|'t|'re)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
         "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}}},
      {"behavior", "Isolated"},
      {"invert", false}};
  const nlohmann::json byte_level = json["pre_tokenizer"];
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
  return motley::Tokenizer::parse(json.dump()).value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const motley::Tokenizer tokenizer = make_tokenizer();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<motley::TokenId> ids = tokenizer.encode(text).value();
  const std::string decoded = tokenizer.decode(ids, false);
  MOTLEY_CHECK(decoded == motley::replace_invalid_utf8(text), "decode undoes encode");
  motley::Detokenizer detokenizer(tokenizer, false);
  std::string pieces;
  for (const motley::TokenId id : ids) pieces += detokenizer.push(id);
  pieces += detokenizer.finish();
  MOTLEY_CHECK(pieces == decoded, "the pieces add up to the whole");
  return 0;
}
