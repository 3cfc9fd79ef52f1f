// What the expert cache has learned about a model, kept between runs.
//
// File (little endian): "MTLEHEAT", u32 version 1, u32 layers, u32 experts, u32 length of the
// model's name, u64 identity of the model, the name, layers x experts float32 (uses per step, 0 to
// 1), u64 hash (base/hash.h) of everything before it. Exactly that long. Heat only changes which
// experts are in memory, never a result, so a file that is damaged or of another model is refused
// and the caller starts cold.
// Ownership: values. Thread rule: free functions. Fault points: io.open, io.read, io.write,
// io.publish.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fault_points.h"
#include "base/status.h"
#include "experts/cache/victim_index.h"

namespace motley {

struct HeatTable {
  std::string model;      // for people: printable ASCII, at most 512 bytes
  uint64_t identity = 0;  // of the model's config and tensors, as the caller defines it
  int layers = 0;
  int experts = 0;
  std::vector<float> uses_per_step;  // [layer][expert], as FrequencyRecency::heat()

  // At most `count` experts that were used at all, the hottest first; ties by layer and expert.
  std::vector<CachedExpert> hottest(size_t count) const;
};

// kInvalidArgument unless the table is of a model with this shape and identity.
Status check_heat_is_of(const HeatTable& heat, int layers, int experts, uint64_t identity);

// The file appears under its name when it is complete and durable. kInvalidArgument for a table
// that the reader would refuse.
Status save_heat(FaultPoints& faults, const std::string& path, const HeatTable& heat);

// kCorrupt or kUnsupported with one line that says what is wrong; kNotFound without a file.
Result<HeatTable> parse_heat(std::span<const std::byte> bytes);
Result<HeatTable> load_heat(FaultPoints& faults, const std::string& path);

}  // namespace motley
