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

ExpertLayout ExpertLayout::create_packed(const std::vector<std::vector<ExpertWeights>>& layers,
                                         FunctionRef<RecordPlace(int layer, int expert)> place,
                                         int files_per_copy) {
  ExpertLayout layout;
  layout.files_per_copy_ = files_per_copy;
  layout.layers_.resize(layers.size());
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (size_t expert = 0; expert < layers[layer].size(); ++expert) {
      const ExpertWeights& weights = layers[layer][expert];
      const RecordShape shape = RecordShape::of(weights);
      const RecordPlace where = place(static_cast<int>(layer), static_cast<int>(expert));
      Entry entry{.shape = weights,
                  .at = shape.at,
                  .first_read = static_cast<uint32_t>(layout.reads_.size()),
                  .gate_up_reads = 1,
                  .down_reads = 1,
                  .copies = where.copies};
      for (WeightPlane* plane : expert_planes(entry.shape)) plane->data = nullptr;
      for (int i = 0; i < kPlanes; ++i) layout.payload_bytes_ += expert_plane_bytes(weights, i);
      layout.reads_.push_back({where.file, where.offset, shape.gate_up_bytes, 0});
      layout.reads_.push_back(
          {where.file, where.offset + shape.gate_up_bytes, shape.down_bytes, shape.gate_up_bytes});
      layout.layers_[layer].push_back(entry);
      layout.slot_bytes_ = std::max(layout.slot_bytes_, shape.bytes());
    }
  }
  return layout;
}

std::vector<ExpertLayout::Plane> ExpertLayout::planes_of(
    const ExpertWeights& expert, std::span<const std::span<const std::byte>> files) {
  std::vector<Plane> found;
  const auto all = expert_planes(expert);
  for (int i = 0; i < kPlanes; ++i) {
    const std::byte* data = all[static_cast<size_t>(i)]->data;
    if (data == nullptr) continue;
    Plane plane{.file = -1, .bytes = expert_plane_bytes(expert, i), .index = i};
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
  for (WeightPlane* plane : expert_planes(entry.shape)) plane->data = nullptr;
  entry.first_read = static_cast<uint32_t>(reads_.size());
  std::vector<Plane> found = planes_of(expert, files);
  for (const Plane& plane : found) payload_bytes_ += plane.bytes;
  const auto down = std::find_if(found.begin(), found.end(),
                                 [](const Plane& plane) { return plane.index >= kFirstDownPlane; });
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

uint32_t ExpertLayout::copies(int layer, int expert) const {
  return layers_[index(layer)][static_cast<size_t>(expert)].copies;
}

ExpertWeights ExpertLayout::weights_in(int layer, int expert, const std::byte* slot) const {
  const Entry& entry = layers_[index(layer)][static_cast<size_t>(expert)];
  ExpertWeights weights = entry.shape;
  const auto all = expert_planes(weights);
  for (size_t i = 0; i < all.size(); ++i) {
    if (entry.at[i] >= 0) all[i]->data = slot + entry.at[i];
  }
  return weights;
}

}  // namespace motley
