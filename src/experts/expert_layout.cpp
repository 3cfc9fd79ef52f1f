#include "experts/expert_layout.h"

#include <algorithm>

#include "base/check.h"

namespace motley {
namespace {

constexpr int64_t kBlock = ExpertLayout::kBlockBytes;

int64_t block_begin(int64_t offset) {
  return offset / kBlock * kBlock;
}
int64_t block_end(int64_t offset) {
  return (offset + kBlock - 1) / kBlock * kBlock;
}

// The nine planes in the order of their indices.
template <typename Weights>
auto planes(Weights& weights) {
  return std::array{&weights.gate.codes, &weights.gate.scales, &weights.gate.biases,
                    &weights.up.codes,   &weights.up.scales,   &weights.up.biases,
                    &weights.down.codes, &weights.down.scales, &weights.down.biases};
}

int64_t rows_of_plane(const ExpertWeights& weights, int plane) {
  if (plane < 3) return weights.gate.rows;
  return plane < 6 ? weights.up.rows : weights.down.rows;
}

}  // namespace

ExpertLayout ExpertLayout::create(const std::vector<std::vector<ExpertWeights>>& layers,
                                  std::span<const std::span<const std::byte>> files) {
  ExpertLayout layout;
  layout.layers_.resize(layers.size());
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const ExpertWeights& expert : layers[layer]) {
      layout.layers_[layer].push_back(layout.add_expert(expert, files));
    }
  }
  return layout;
}

std::vector<ExpertLayout::Plane> ExpertLayout::planes_of(
    const ExpertWeights& expert, std::span<const std::span<const std::byte>> files) {
  std::vector<Plane> found;
  const auto all = planes(expert);
  for (int i = 0; i < kPlanes; ++i) {
    const std::byte* data = all[static_cast<size_t>(i)]->data;
    if (data == nullptr) continue;
    Plane plane{.file = -1,
                .bytes = rows_of_plane(expert, i) * all[static_cast<size_t>(i)]->row_bytes,
                .index = i};
    for (size_t file = 0; file < files.size(); ++file) {
      const std::byte* begin = files[file].data();
      if (data < begin || data + plane.bytes > begin + files[file].size()) continue;
      plane.file = static_cast<int>(file);
      plane.offset = data - begin;
    }
    MOTLEY_CHECK(plane.file >= 0, "an expert lies outside the checkpoint's files");
    found.push_back(plane);
  }
  return found;
}

ExpertLayout::Entry ExpertLayout::add_expert(const ExpertWeights& expert,
                                             std::span<const std::span<const std::byte>> files) {
  Entry entry{.shape = expert};
  entry.at.fill(-1);
  for (WeightPlane* plane : planes(entry.shape)) plane->data = nullptr;
  entry.first_read = static_cast<uint32_t>(reads_.size());
  std::vector<Plane> found = planes_of(expert, files);
  for (const Plane& plane : found) payload_bytes_ += plane.bytes;
  const auto down =
      std::find_if(found.begin(), found.end(), [](const Plane& plane) { return plane.index >= 6; });
  const auto by_place = [](const Plane& a, const Plane& b) {
    return a.file != b.file ? a.file < b.file : a.offset < b.offset;
  };
  std::sort(found.begin(), down, by_place);
  std::sort(down, found.end(), by_place);
  int64_t used = 0;
  entry.gate_up_reads = static_cast<uint16_t>(add_reads({found.begin(), down}, &used, &entry));
  entry.down_reads = static_cast<uint16_t>(add_reads({down, found.end()}, &used, &entry));
  slot_bytes_ = std::max(slot_bytes_, used);
  return entry;
}

int ExpertLayout::add_reads(std::span<const Plane> planes, int64_t* used, Entry* entry) {
  const size_t before = reads_.size();
  for (size_t i = 0; i < planes.size();) {
    ExpertRead read{.file = planes[i].file, .offset = block_begin(planes[i].offset), .at = *used};
    int64_t end = planes[i].offset;
    for (; i < planes.size() && planes[i].file == read.file &&
           planes[i].offset <= end + kMergeGapBytes;
         ++i) {
      entry->at[static_cast<size_t>(planes[i].index)] = read.at + planes[i].offset - read.offset;
      end = std::max(end, planes[i].offset + planes[i].bytes);
    }
    read.bytes = block_end(end) - read.offset;
    *used += read.bytes;
    reads_.push_back(read);
  }
  return static_cast<int>(reads_.size() - before);
}

int ExpertLayout::expert_layers() const {
  return static_cast<int>(std::count_if(layers_.begin(), layers_.end(),
                                        [](const auto& experts) { return !experts.empty(); }));
}

int64_t ExpertLayout::expert_count() const {
  int64_t count = 0;
  for (const auto& experts : layers_) count += std::ssize(experts);
  return count;
}

ExpertReads ExpertLayout::reads(int layer, int expert) const {
  const Entry& entry = layers_[index(layer)][static_cast<size_t>(expert)];
  const std::span<const ExpertRead> all(reads_.data() + entry.first_read,
                                        size_t{entry.gate_up_reads} + entry.down_reads);
  return {all.first(entry.gate_up_reads), all.subspan(entry.gate_up_reads)};
}

ExpertWeights ExpertLayout::weights_in(int layer, int expert, const std::byte* slot) const {
  const Entry& entry = layers_[index(layer)][static_cast<size_t>(expert)];
  ExpertWeights weights = entry.shape;
  const auto all = planes(weights);
  for (size_t i = 0; i < all.size(); ++i) {
    if (entry.at[i] >= 0) all[i]->data = slot + entry.at[i];
  }
  return weights;
}

}  // namespace motley
