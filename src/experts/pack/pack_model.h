// The experts of a checkpoint as the things around packs need them: what they are, where they lie,
// and whose they are.
//
// Ownership: views of the checkpoint, which must outlive it. Thread rule: share by const reference.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "experts/pack/pack_manifest.h"
#include "io/checkpoint.h"
#include "ops/moe.h"

namespace motley {

struct PackModel {
  const Checkpoint* checkpoint = nullptr;
  // By layer and expert; planes lie in the checkpoint's mapped shards (nothing reads them there).
  std::vector<std::vector<ExpertWeights>> layers;

  std::vector<std::span<const std::byte>> files() const;  // the shards' bytes
};

// What a pack of the model must say, for part `part` of `parts`. Reads a few kilobytes of experts,
// so that a model of the same shape with other experts is told apart. kUnsupported when the experts
// of a layer differ in shape; kInvalidArgument when there are none.
Result<PackManifest> manifest_of(const PackModel& model, int parts, int part);

}  // namespace motley
