#include "experts/resident_store.h"

#include <algorithm>

namespace motley {

Status ResidentExpertStore::for_each_wave(int layer, std::span<const int32_t> wanted, Wave compute,
                                          [[maybe_unused]] Meanwhile meanwhile) {
  const std::vector<ExpertWeights>& experts = layers_[static_cast<size_t>(layer)];
  const size_t slots = wave_slots_ > 0 ? static_cast<size_t>(wave_slots_) : wanted.size();
  for (size_t begin = 0; begin < wanted.size(); begin += slots) {
    resolved_.clear();
    for (const int32_t expert : wanted.subspan(begin, std::min(slots, wanted.size() - begin))) {
      MOTLEY_CHECK(expert >= 0 && static_cast<size_t>(expert) < experts.size(),
                   "routing chose an expert that does not exist");
      resolved_.push_back({expert, &experts[static_cast<size_t>(expert)]});
    }
    compute(resolved_);
  }
  return Status::ok();
}

}  // namespace motley
