// A file of expert heat: whatever is accepted can be given to the policy.
#include <cstdlib>

#include "experts/cache/heat_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto heat = motley::parse_heat(std::as_bytes(std::span(data, size)));
  if (!heat.is_ok()) {
    if (heat.status().message().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const auto experts = static_cast<size_t>(heat->layers) * static_cast<size_t>(heat->experts);
  if (heat->uses_per_step.size() != experts) std::abort();
  for (const float rate : heat->uses_per_step) {
    if (!(rate >= 0 && rate <= 1)) std::abort();
  }
  for (const auto& [layer, expert] : heat->hottest(8)) {
    if (layer < 0 || layer >= heat->layers || expert < 0 || expert >= heat->experts) std::abort();
  }
  return 0;
}
