// Patterns as hostile input: refused or compiled, and bounded when they run.
#include <cstdint>
#include <string_view>

#include "text/regex.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view pattern(reinterpret_cast<const char*>(data), size);
  const auto regex = motley::Regex::compile(pattern);
  if (!regex.is_ok()) return 0;
  motley::Regex::Scratch scratch;
  (void)regex.value().search("It's 42 caf\xC3\xA9s \xE6\xBC\xA2\n", 0, scratch).is_ok();
  return 0;
}
