// The packs that a model is streamed from.
//
// One directory, several that are equal (mirrors), or the parts of a split, each of which may be
// mirrored too. A record that one directory lacks is read from another; together they must have
// all. Ownership: keeps a shared lock on each directory, so that nobody writes it meanwhile. Thread
// rule: immutable after open(). Errors: kInvalidArgument or kCorrupt, one line that names the
// directory and what to do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/status.h"
#include "experts/expert_layout.h"
#include "experts/pack/pack_directory.h"
#include "experts/pack/pack_model.h"

namespace motley {

class PackSet {
 public:
  static constexpr size_t kMaxDirectories = 32;

  static Result<PackSet> open(Context& context, std::span<const std::string> directories,
                              const PackModel& model);

  // Of the first model.layers.size() layers; `layers` may leave out drafts.
  ExpertLayout layout(const std::vector<std::vector<ExpertWeights>>& layers) const;
  // The files that the layout's indices mean.
  Result<std::vector<DirectFile>> open_files() const;
  // Their paths, in the same order.
  std::vector<std::string> file_paths() const;
  const RecordSums& sums(int layer, int expert) const;
  size_t directory_count() const { return directories_.size(); }

 private:
  PackSet() = default;
  Status merge(const PackModel& model);

  std::vector<PackDirectory> directories_;
  std::vector<size_t> layer_index_;            // layer -> index into the manifest's layers
  std::vector<std::vector<RecordSums>> sums_;  // [index][expert]
  std::vector<std::vector<uint32_t>> copies_;  // bit d: directory d has it
};

}  // namespace motley
