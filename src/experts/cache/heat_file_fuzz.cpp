// A file of expert heat: whatever is accepted can be given to the policy.
#include <cstdlib>
#include <cstring>

#include "base/hash.h"
#include "experts/cache/heat_file.h"
#include "experts/cache/little_endian.h"

namespace {

void check(std::span<const std::byte> bytes) {
  const auto heat = motley::parse_heat(bytes);
  if (!heat.is_ok()) {
    if (heat.status().message().find('\n') != std::string::npos) std::abort();
    return;
  }
  const auto experts = static_cast<size_t>(heat->layers) * static_cast<size_t>(heat->experts);
  if (heat->uses_per_step.size() != experts) std::abort();
  for (const float rate : heat->uses_per_step) {
    if (!(rate >= 0 && rate <= 1)) std::abort();
  }
  for (const auto& [layer, expert] : heat->hottest(8)) {
    if (layer < 0 || layer >= heat->layers || expert < 0 || expert >= heat->experts) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check(bytes);
  // The same with the right magic and checksum, which no fuzzer would find.
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  if (size < 16) return 0;
  std::memcpy(sealed.data(), "MTLEHEAT", 8);
  sealed.resize(size - 8);
  motley::append_little(sealed, motley::hash_bytes(sealed));
  check(sealed);
  return 0;
}
