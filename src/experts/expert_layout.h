// Where the bytes of every routed expert lie in the checkpoint's files, and how they lie in a slot.
//
// An expert is three matrices of up to three planes. Each plane is one range of a file; ranges that
// touch or nearly touch are read together. Direct reads want offsets, lengths and addresses that
// are multiples of a block, so a range is widened to whole blocks and the planes are used where
// they end up, whatever their alignment. Works for every layout the loader accepts: experts as
// tensors of their own, stacked by projection, or with gate and up fused; and for packed records
// (record_shape.h), of which there may be several copies.
// Ownership: an immutable value, no view into the mapping. Thread rule: share by const reference.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "experts/record_shape.h"
#include "ops/moe.h"

namespace motley {

// One read into a slot; offset, bytes and at are multiples of the block.
struct ExpertRead {
  int file = 0;        // index among the files the layout was made from
  int64_t offset = 0;  // in the file
  int64_t bytes = 0;   // may end up to one block behind the end of the file
  int64_t at = 0;      // in the slot
};

// How one expert is brought into a slot. Gate and up are wanted first.
struct ExpertReads {
  std::span<const ExpertRead> gate_up;
  std::span<const ExpertRead> down;
};

// Where the record of an expert is.
struct RecordPlace {
  int file = 0;  // of the first copy; copy c has it in file + c * files per copy
  int64_t offset = 0;
  uint32_t copies = 1;  // bit c: copy c has it
};

class ExpertLayout {
 public:
  static constexpr int64_t kBlockBytes = kRecordBlock;
  // Planes nearer than this are read as one range: a small read costs about as much.
  static constexpr int64_t kMergeGapBytes = 16 << 10;

  // layers[i]: the experts of layer i as the loader left them, with planes inside `files` (the
  // mapped bytes of each file, by index). Nothing is read.
  static ExpertLayout create(const std::vector<std::vector<ExpertWeights>>& layers,
                             std::span<const std::span<const std::byte>> files);
  // The same experts as packed records.
  static ExpertLayout create_packed(const std::vector<std::vector<ExpertWeights>>& layers,
                                    FunctionRef<RecordPlace(int layer, int expert)> place,
                                    int files_per_copy);

  int layers() const { return static_cast<int>(layers_.size()); }
  int experts(int layer) const { return static_cast<int>(layers_[index(layer)].size()); }
  int expert_layers() const;                          // those that have experts
  int64_t expert_count() const;                       // of all layers
  int64_t slot_bytes() const { return slot_bytes_; }  // the most that an expert needs
  // Bytes that all experts are, without what blocks add.
  int64_t payload_bytes() const { return payload_bytes_; }

  ExpertReads reads(int layer, int expert) const;  // of copy 0
  // Bit c: copy c has the expert, at the same places of files later by c * files_per_copy().
  uint32_t copies(int layer, int expert) const;
  int files_per_copy() const { return files_per_copy_; }
  // The expert's weights in a slot that its reads have filled.
  ExpertWeights weights_in(int layer, int expert, const std::byte* slot) const;

 private:
  static constexpr int kPlanes = kExpertPlanes;
  struct Entry {
    ExpertWeights shape;                   // planes carry strides only
    std::array<int64_t, kPlanes> at = {};  // of each plane in the slot; -1: no such plane
    uint32_t first_read = 0;
    uint16_t gate_up_reads = 0;
    uint16_t down_reads = 0;
    uint32_t copies = 1;
  };
  struct Plane {
    int file = 0;
    int64_t offset = 0;
    int64_t bytes = 0;
    int index = 0;  // 0 .. kPlanes - 1
  };

  static size_t index(int layer) { return static_cast<size_t>(layer); }
  static std::vector<Plane> planes_of(const ExpertWeights& expert,
                                      std::span<const std::span<const std::byte>> files);
  Entry add_expert(const ExpertWeights& expert, std::span<const std::span<const std::byte>> files);
  int add_reads(std::span<const Plane> planes, int64_t* used, Entry* entry);

  std::vector<std::vector<Entry>> layers_;
  std::vector<ExpertRead> reads_;
  int files_per_copy_ = 0;
  int64_t slot_bytes_ = 0;
  int64_t payload_bytes_ = 0;
};

}  // namespace motley
