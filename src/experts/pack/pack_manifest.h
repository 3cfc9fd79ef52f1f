// What a pack directory says about itself: motley-pack.json and checksums.bin.
//
// A pack holds the routed experts of one checkpoint as records (experts/record_shape.h), a file per
// layer. The experts may be split over several directories ("parts"): expert e of layer l lies in
// part (e + l) mod parts. The manifest names the checkpoint and the layers; the table has one entry
// per record of the part, in order of layer and expert: xxh3 of the gate+up part, of the down part,
// and a seal over both that depends on the checkpoint and the place. An entry whose seal does not
// fit is none: that record has not been written, or is known to be damaged.
// Both files are input like any other; every size is checked before memory is taken.
// Format: docs/pack.md. Units: bytes. Thread rule: values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace motley {

inline constexpr std::string_view kPackManifestName = "motley-pack.json";
inline constexpr std::string_view kPackTableName = "checksums.bin";
inline constexpr int kMaxPackParts = 16;

struct PackSourceFile {
  std::string name;          // without directory
  int64_t bytes = 0;         // of the file
  uint64_t header_hash = 0;  // of its safetensors header
  friend bool operator==(const PackSourceFile&, const PackSourceFile&) = default;
};

// Which checkpoint the experts are of.
struct PackSource {
  std::vector<PackSourceFile> files;
  uint64_t sample_hash = 0;  // of a few bytes of experts of every layer
  friend bool operator==(const PackSource&, const PackSource&) = default;
};

// A layer with experts, all of one shape.
struct PackLayer {
  int32_t layer = 0;
  int32_t experts = 0;
  int64_t gate_up_bytes = 0;
  int64_t down_bytes = 0;

  int64_t record_bytes() const { return gate_up_bytes + down_bytes; }
  friend bool operator==(const PackLayer&, const PackLayer&) = default;
};

struct PackManifest {
  PackSource source;
  int parts = 1;
  int part = 0;
  std::vector<PackLayer> layers;  // ascending, not empty

  // Experts of layers[index] in this part, and their number in all.
  int64_t records_of(size_t index) const;
  int64_t records() const;
  int64_t bytes() const;  // of all records of the part
  friend bool operator==(const PackManifest&, const PackManifest&) = default;
};

// The part that has expert `expert` of layer `layer`, and its position in the layer's file there.
int part_of_expert(int parts, int layer, int expert);
int64_t position_in_part(int parts, int expert);
// The expert at that position.
int expert_at(int parts, int part, int layer, int64_t position);
std::string layer_file_name(int layer);  // "layer-00012.experts"

// Limits: 4096 files, 4096 layers, 65536 experts each, 2^32 bytes a record, 2^20 records.
// kCorrupt or kInvalidArgument naming `file` and the key.
Result<PackManifest> parse_pack_manifest(std::string_view text, std::string file);
std::string format_pack_manifest(const PackManifest& manifest);

struct RecordSums {
  uint64_t gate_up = 0;
  uint64_t down = 0;
  friend bool operator==(const RecordSums&, const RecordSums&) = default;
};

inline constexpr int64_t kPackEntryBytes = 24;

// One record's entry, as it lies in the table; `index` counts the records of the part.
std::vector<std::byte> pack_table_entry(const PackManifest& manifest, int64_t index,
                                        const RecordSums& sums);
// The entries of a table of any length: what is missing or not sealed is empty.
std::vector<std::optional<RecordSums>> parse_pack_table(const PackManifest& manifest,
                                                        std::span<const std::byte> table);

}  // namespace motley
