// Turns bound modules into the weights of a ModelSpec: in place where rows are contiguous, copied
// otherwise. Used by the loader; the steps are plan, assemble, release.
// Thread rule: one thread calls; copying uses the context's threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/context.h"
#include "base/status.h"
#include "io/loader.h"
#include "io/made_up_weights.h"
#include "io/module_table.h"

namespace motley {

class WeightAssembler {
 public:
  // The table and the spec must outlive the assembler.
  // stream_experts: see LoadOptions.
  WeightAssembler(const ModelSpec& spec, const ModuleTable& table, bool stream_experts = false);

  // The ledger: one row per tensor, then the skipped ones.
  Result<Placement> plan();
  // After plan(): what would be copied stays empty.
  void leave_copies();
  // After plan(): fills slots and copies. `checkpoint` is the one the table views.
  Result<LoadedWeights> assemble(Context& context, Checkpoint checkpoint);
  // After plan(), instead: made-up values (io/made_up_weights.h). The files are not read.
  Result<LoadedWeights> make_up(Context& context, Checkpoint checkpoint,
                                std::span<const MadeUpTensor> tensors);
  // After plan(), instead: experts alone, as they lie in the mapped files.
  LoadedWeights locate_experts(Checkpoint checkpoint);
  // Bytes of the mapping that stay in use, and those that were only copied from.
  std::vector<std::span<const std::byte>> mapped_ranges() const;
  std::vector<std::span<const std::byte>> copied_ranges() const;

 private:
  // A tensor that gets memory of its own.
  struct Copy {
    size_t tensor = 0;
    std::vector<WeightMatrix> sources;  // row ranges, in order
    int64_t offset = 0;                 // into the copy buffer
    int64_t bytes = 0;
    TiledHeads columns;  // of the one source, when its columns are put in order
  };

  Result<PlacementRow> plan_tensor(size_t index);
  Status plan_matrix(size_t index, PlacementRow* row);
  bool plan_column_order(size_t index, const std::vector<WeightMatrix>& sources, PlacementRow* row);
  void plan_experts(size_t index, PlacementRow* row);
  void plan_values(size_t index, PlacementRow* row);
  int64_t reserve(int64_t bytes);
  WeightMatrix format_of(size_t index) const;
  void add_ranges(const Copy& copy, std::vector<std::span<const std::byte>>* ranges) const;

  const ModelSpec& spec_;
  const ModuleTable& table_;
  const bool stream_experts_;
  std::vector<LoadedWeights::Slot> slots_;
  std::vector<Copy> copies_;
  int64_t copy_bytes_ = 0;
};

}  // namespace motley
