// From a model directory to weights that can be computed with.
//
// Matrices are used in place, as they lie in the mapped file, when their rows are contiguous
// there; what is rearranged (fused projections) or converted (vectors and convolutions, to
// float32) is copied. Nothing of the checkpoint is left unaccounted for (R4): each tensor is used,
// tied or skipped for a reason, or loading refuses and lists the rest.
// Ownership: LoadedWeights owns mappings and copies; views die with it, and survive a move of it.
// Thread rule: immutable after loading; share by const reference.
// Errors: one line that names the file and the tensor or key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "base/status.h"
#include "io/checkpoint.h"
#include "io/mapped_file.h"
#include "spec/config_json.h"
#include "spec/generation_config.h"
#include "spec/model_spec.h"
#include "spec/quantization_config.h"
#include "tensor/tensor_view.h"
#include "tensor/weight_matrix.h"
#include "topology/placement.h"

namespace motley {

class ModuleTable;

class LoadedWeights {
 public:
  // With stream_experts the planes of expert() name bytes of the mapped file that nothing may read;
  // their places in the files are what they stand for (experts/expert_layout.h).
  const WeightMatrix& matrix(TensorHandle handle) const;              // kMatrix
  ConstTensorView vector(TensorHandle handle) const;                  // [n], float32
  ConstTensorView table(TensorHandle handle) const;                   // [rows, cols], float32
  ConstTensorView convolution(TensorHandle handle) const;             // [channels, kernel], float32
  const WeightMatrix& expert(TensorHandle handle, int expert) const;  // one of kExperts
  const Checkpoint& checkpoint() const { return checkpoint_; }
  // Ends the weights' life.
  Checkpoint take_checkpoint() && { return std::move(checkpoint_); }
  // Memory of their own that weights take; locked_bytes() of it cannot be swapped out.
  int64_t copied_bytes() const { return static_cast<int64_t>(copies_.size()); }
  int64_t locked_bytes() const { return locked_bytes_; }

 private:
  friend class WeightAssembler;
  struct Slot {
    TensorRole role = TensorRole::kMatrix;
    std::vector<WeightMatrix> matrices;  // one, or one per expert
    ConstTensorView values;              // vectors, tables and convolutions
  };

  explicit LoadedWeights(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  const Slot& slot(TensorHandle handle, TensorRole role) const;

  Checkpoint checkpoint_;
  AlignedBuffer copies_;
  int64_t locked_bytes_ = 0;
  std::vector<Slot> slots_;  // by TensorHandle
};

struct LoadOptions {
  bool populate = true;  // bring mapped weights into memory now
  // Routed experts stay in the file (experts/streamed_store.h reads them, and checks their scales
  // when they arrive); everything else gets memory of its own, locked where the system allows it,
  // and nothing of the page cache is counted on.
  bool stream_experts = false;
  // Only expert() of the weights may be used, as with stream_experts: nothing else is read, copied
  // or checked but names and shapes. For who copies experts elsewhere.
  bool experts_only = false;
  ProgressCallback progress;  // bytes populated; on the caller's thread
};

// A model directory read and understood, no weight touched yet: what inspect and plan need.
struct OpenedModel {
  ConfigJson config;
  ModelSpec spec;  // eos_tokens: union of config.json and generation_config.json
  QuantizationConfig quantization;
  GenerationConfig generation;
  Checkpoint checkpoint;
};
// An error unless config.json of the directory names a family of this build. Reads nothing else.
Status check_model_family(Context& context, const std::string& path);

Result<OpenedModel> open_model(Context& context, const std::string& path);

// The ledger of a model that is not loaded; every check of loading but the scan of scales.
Result<Placement> place_model(const OpenedModel& model, const LoadOptions& options = {});

// Routed experts as they lie in the mapped files, which are not read: expert() works, the rest of
// LoadedWeights does not. For asking how experts would be read (experts/expert_layout.h).
Result<LoadedWeights> locate_experts(OpenedModel model);

struct LoadedModel {
  ModelSpec spec;
  LoadedWeights weights;
  Placement placement;
  QuantizationConfig quantization;
  GenerationConfig generation;
};
Result<LoadedModel> load_model(Context& context, const std::string& path,
                               const LoadOptions& options = {});

// The same from a model that is open already.
Result<LoadedModel> load_model(Context& context, OpenedModel model,
                               const LoadOptions& options = {});

}  // namespace motley
