// The modules of a checkpoint that a model needs, held against the configuration.
//
// A module is a matrix (or a stack of matrices, a vector, a convolution) of the file in any
// supported format: one tensor, weight + scales + biases, or codes and scales of block-scaled
// floats (spec/block_float_names.h). Each module's format follows from its own tensors. The table
// collects what the pieces of a ModelSpec ask for, checks presence, element type, shape and
// quantisation of each, and finds tensors that nothing asks for (R4). Ownership: views into the
// Checkpoint, which must outlive the table. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"
#include "spec/block_float_names.h"
#include "spec/model_spec.h"
#include "spec/quantization_config.h"
#include "tensor/weight_matrix.h"

namespace motley {

struct Module {
  std::string name;
  TensorRole role = TensorRole::kMatrix;
  bool bare = false;
  int64_t experts = 1;  // leading dimension of a stack
  bool stacked = false;
  int64_t rows = 0;  // per expert; elements of a vector
  int64_t cols = 1;

  // Set by bind(): codes, scales and biases, as far as the format has them, then the scale of the
  // whole tensor.
  std::vector<const CheckpointTensor*> tensors;
  WeightMatrix matrix;               // of the first expert
  int64_t scalar_bytes = 0;          // of the scale of the whole tensor
  FloatKind kind = FloatKind::kFp8;  // of block-scaled floats

  WeightMatrix expert(int64_t index) const;
  bool is_block_float() const { return matrix.format == WeightFormat::kBlockFloat; }
};

class ModuleTable {
 public:
  // Errors: kNotFound listing missing tensors, kCorrupt for a wrong shape or type, kCorrupt
  // listing tensors that are neither used nor skipped.
  static Result<ModuleTable> create(const Checkpoint& checkpoint, const ModelSpec& spec,
                                    const QuantizationConfig& quantization);

  const std::vector<Module>& modules() const { return modules_; }
  // The module of `piece`, for expert `expert` when the experts are separate modules.
  const Module& module_of(const TensorPiece& piece, int64_t expert) const;

  struct Skipped {
    const CheckpointTensor* tensor;
    std::string_view reason;  // of the ModelSpec
  };
  const std::vector<Skipped>& skipped() const { return skipped_; }

 private:
  ModuleTable(const Checkpoint& checkpoint, const QuantizationConfig& quantization)
      : checkpoint_(checkpoint), quantization_(quantization) {}

  void collect(const TensorSpec& tensor);
  Status check_presence(const ModelSpec& spec) const;
  Status bind(Module* module) const;
  Status bind_plain(Module* module, const CheckpointTensor& weight) const;
  Status bind_affine(Module* module, const CheckpointTensor& weight) const;
  Status bind_block(Module* module, const BlockFloatTensors& names) const;
  Status check_claim() const;
  std::string_view unused_scale(std::string_view name) const;
  Status bind_gguf(Module* module, const CheckpointTensor& weight) const;
  Result<MlxAffineFormat> derive_affine(const Module& module, const CheckpointTensor& weight,
                                        const CheckpointTensor& scales) const;
  Status check_shape(const CheckpointTensor& tensor, const std::vector<int64_t>& expected) const;
  Status error(const CheckpointTensor& tensor, std::string_view what) const;
  Status account(const ModelSpec& spec);

  const Checkpoint& checkpoint_;
  const QuantizationConfig& quantization_;
  std::vector<Module> modules_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<Skipped> skipped_;
};

// "bf16", "mlx 4-bit g64", "nvfp4", ...
std::string format_name(const WeightMatrix& matrix);

}  // namespace motley
