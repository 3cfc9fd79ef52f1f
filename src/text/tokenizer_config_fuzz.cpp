// tokenizer_config.json as hostile input.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/tokenizer_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto config = motley::TokenizerConfig::parse(json);
  if (!config.is_ok()) {
    MOTLEY_CHECK(config.status().message().find('\n') == std::string::npos, "one line");
  }
  return 0;
}
