// Which experts of a streamed model were used most, from one run to the next.
//
// One small file per model in a folder, named by what the routers are: another format of the same
// model has routers of its own, and learns anew. Heat decides which experts stay in memory, never a
// result, so a file that cannot be used is left aside with a warning.
// Thread rule: free functions; of two programs that save, the last one wins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/context.h"
#include "experts/cache/eviction_policy.h"
#include "experts/cache/heat_file.h"
#include "io/loader.h"

namespace motley {

struct HeatName {
  std::string path;       // FOLDER/heat-IDENTITY.bin
  uint64_t identity = 0;  // of the routers of the first and the last layer with experts, and shape
};
HeatName heat_name(const LoadedModel& model, const CacheShape& shape, const std::string& folder);

// Uses per step, [layer][expert]; empty when there is no usable file.
std::vector<float> read_heat(Context& context, const HeatName& name, const CacheShape& shape);

}  // namespace motley
