// The cache of rates: whatever is accepted is within limits and comes back the same from its text.
#include <cstdlib>

#include "engine/plan/rate_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto all = motley::parse_model_rates(text, "rates.json");
  if (!all.is_ok()) return 0;
  for (const motley::StoredRates& stored : *all) {
    if (stored.rates.threads < 1 || !(stored.rates.read_all_bytes_per_s >= 1)) std::abort();
    for (const motley::KindRates& kind : stored.rates.kinds) {
      if (!(kind.decode_s > 0) || !(kind.experts_s >= 0)) std::abort();
    }
  }
  const std::string again = motley::format_model_rates(*all);
  if (again.size() > (size_t{256} << 10)) return 0;
  const auto reparsed = motley::parse_model_rates(again, "rates.json");
  if (!reparsed.is_ok() || *reparsed != *all) std::abort();
  return 0;
}
