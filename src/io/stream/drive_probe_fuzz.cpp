// The drive cache: whatever is accepted is within limits and comes back the same from its own text.
#include <cmath>
#include <cstdlib>

#include "io/stream/drive_probe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto probes = motley::parse_drive_probes(text, "drives.json");
  if (!probes.is_ok()) return 0;
  for (motley::DriveProbe& probe : *probes) {
    if (probe.best_depth() < 1 || probe.best_bytes_per_second() < 1) std::abort();
    // Rates are written as whole numbers.
    for (auto& rate : probe.random) rate.bytes_per_second = std::floor(rate.bytes_per_second);
    probe.sequential_bytes_per_second = std::floor(probe.sequential_bytes_per_second);
  }
  const std::string again = motley::format_drive_probes(*probes);
  if (again.size() > (size_t{256} << 10)) return 0;
  const auto reparsed = motley::parse_drive_probes(again, "drives.json");
  if (!reparsed.is_ok() || *reparsed != *probes) std::abort();
  return 0;
}
