#include "experts/pack/pack_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/hash.h"
#include "experts/cache/little_endian.h"
#include "experts/record_shape.h"

namespace motley {
namespace {

// Any training that changes experts changes nearly all bytes of them, so few places will do.
constexpr size_t kSampledExperts = 4;  // of a layer
constexpr int64_t kSampleBytes = 64;

Result<PackSource> source_of(const Checkpoint& checkpoint) {
  PackSource source;
  for (const MappedFile& shard : checkpoint.shards()) {
    const std::span<const std::byte> bytes = shard.bytes();
    // The checkpoint has checked that the header is there.
    const uint64_t header = 8 + load_little<uint64_t>(bytes);
    source.files.push_back(
        {.name = std::filesystem::path(shard.file().name()).filename().string(),
         .bytes = shard.file().size(),
         .header_hash = hash_bytes(bytes.first(std::min<uint64_t>(header, bytes.size())))});
  }
  std::sort(source.files.begin(), source.files.end(),
            [](const PackSourceFile& a, const PackSourceFile& b) { return a.name < b.name; });
  return source;
}

// Reads by position: the mapping's pages of experts stay untouched.
Status read_sample(const Checkpoint& checkpoint, const std::byte* data,
                   std::span<std::byte> sample) {
  for (const MappedFile& shard : checkpoint.shards()) {
    const std::span<const std::byte> bytes = shard.bytes();
    if (data < bytes.data() || data >= bytes.data() + bytes.size()) continue;
    return shard.file().read_exact(data - bytes.data(), sample);
  }
  MOTLEY_CHECK(false, "an expert outside the checkpoint");
  return Status::ok();
}

Result<uint64_t> sample_hash(const PackModel& model) {
  std::vector<std::byte> samples;
  for (const std::vector<ExpertWeights>& layer : model.layers) {
    const size_t step = std::max<size_t>(1, layer.size() / kSampledExperts);
    for (size_t expert = 0; expert < layer.size(); expert += step) {
      for (const int plane : {0, 3, kFirstDownPlane}) {
        const int64_t bytes = expert_plane_bytes(layer[expert], plane);
        const auto count = static_cast<size_t>(std::min(kSampleBytes, bytes));
        samples.resize(samples.size() + count);
        const std::byte* data = expert_planes(layer[expert])[static_cast<size_t>(plane)]->data;
        MOTLEY_RETURN_IF_ERROR(read_sample(*model.checkpoint, data + bytes / 2 - bytes / 2 % 64,
                                           std::span(samples).last(count)));
      }
    }
  }
  return hash_bytes(samples);
}

}  // namespace

std::vector<std::span<const std::byte>> PackModel::files() const {
  std::vector<std::span<const std::byte>> files;
  for (const MappedFile& shard : checkpoint->shards()) files.push_back(shard.bytes());
  return files;
}

Result<PackManifest> manifest_of(const PackModel& model, int parts, int part) {
  PackManifest manifest{.parts = parts, .part = part};
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    const std::vector<ExpertWeights>& experts = model.layers[layer];
    if (experts.empty()) continue;
    if (std::ssize(experts) < parts) {
      return invalid_argument(
          fmt::format("{}: the {} experts of layer {} cannot be split over {} "
                      "directories",
                      model.checkpoint->directory().path(), experts.size(), layer, parts));
    }
    const RecordShape shape = RecordShape::of(experts.front());
    for (const ExpertWeights& expert : experts) {
      if (RecordShape::of(expert) == shape) continue;
      return unsupported(
          fmt::format("{}: the experts of layer {} differ in format; it can be "
                      "streamed as it is, not packed",
                      model.checkpoint->directory().path(), layer));
    }
    manifest.layers.push_back({.layer = static_cast<int32_t>(layer),
                               .experts = static_cast<int32_t>(experts.size()),
                               .gate_up_bytes = shape.gate_up_bytes,
                               .down_bytes = shape.down_bytes});
  }
  if (manifest.layers.empty()) {
    return invalid_argument(model.checkpoint->directory().path() +
                            ": has no routed experts to pack");
  }
  MOTLEY_ASSIGN_OR_RETURN(manifest.source, source_of(*model.checkpoint));
  MOTLEY_ASSIGN_OR_RETURN(manifest.source.sample_hash, sample_hash(model));
  return manifest;
}

}  // namespace motley
