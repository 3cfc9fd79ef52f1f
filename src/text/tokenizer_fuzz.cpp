// tokenizer.json as hostile input: any bytes give a tokenizer that works or an error of one line.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const motley::Result<motley::Tokenizer> tokenizer = motley::Tokenizer::parse(json);
  if (!tokenizer.is_ok()) {
    MOTLEY_CHECK(tokenizer.status().message().find('\n') == std::string::npos, "one line");
    return 0;
  }
  const std::string_view text = "It's 42 caf\xC3\xA9s <|end|>\n";
  const auto ids = tokenizer.value().encode(text);
  if (ids.is_ok()) tokenizer.value().decode(ids.value(), false);
  return 0;
}
