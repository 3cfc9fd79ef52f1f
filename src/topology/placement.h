// Where every byte of a checkpoint goes (R4), as a ledger.
//
// One row per tensor of the model, then one per tensor of the checkpoint that is left out. The
// file bytes of all rows add up to the data of the checkpoint. Names of parts and formats are
// plain text, so that the ledger knows no model and no number format.
// Thread rule: an immutable value after loading.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace motley {

enum class PlacementKind : uint8_t {
  kMapped,    // used in place, from the mapped file
  kCopied,    // rearranged or converted into memory of its own
  kStreamed,  // stays in the file; read when it is needed
  kTied,      // the same values as another tensor; takes no memory
  kSkipped,   // not used, for the stated reason
};
std::string_view placement_kind_name(PlacementKind kind);

struct PlacementRow {
  std::string name;
  std::string part;    // "attention", "experts", ...; "skipped" for what is left out
  std::string format;  // "bf16", "mlx 4-bit g64", ...
  int64_t elements = 0;
  int64_t file_bytes = 0;
  int64_t memory_bytes = 0;
  PlacementKind where = PlacementKind::kMapped;
  std::string reason;  // why skipped or tied
};

struct PlacementTotal {
  std::string key;
  int64_t tensors = 0;
  int64_t elements = 0;
  int64_t file_bytes = 0;
  int64_t memory_bytes = 0;
};

struct Placement {
  std::vector<PlacementRow> rows;

  // Sums over rows that share a part, a format or a kind, in order of first appearance.
  std::vector<PlacementTotal> by_part() const;
  std::vector<PlacementTotal> by_format() const;
  std::vector<PlacementTotal> by_kind() const;
  PlacementTotal total() const;
};

}  // namespace motley
