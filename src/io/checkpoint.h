// The tensors of a model: one safetensors file or shards with an index, or GGUF files
// (io/gguf_files.h).
//
// Opening maps every shard and checks its header; afterwards each tensor's bytes are a span of the
// mapping. The index and the shard headers must agree exactly: every tensor of the index is in
// the shard it names, no shard holds another one, no tensor is in two shards.
// Ownership: the mappings; spans die with the Checkpoint, and stay valid when it moves.
// Thread rule: immutable after open(). Errors name the file and the tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/context.h"
#include "base/status.h"
#include "io/file.h"
#include "io/gguf_files.h"
#include "io/mapped_file.h"
#include "numeric/gguf_block.h"
#include "spec/gguf_metadata.h"
#include "spec/gguf_model.h"
#include "spec/tensor_catalog.h"

namespace motley {

// model.safetensors.index.json: the shard of each tensor, in order of names.
struct SafetensorsIndex {
  std::vector<std::pair<std::string, std::string>> shard_of_tensor;
};
Result<SafetensorsIndex> parse_safetensors_index(std::string_view json);

struct CheckpointTensor {
  std::string name;
  CatalogEntry entry;
  std::span<const std::byte> bytes;
  size_t shard = 0;
  // Set for quantised blocks of a GGUF file: the dtype is U8, and the shape counts values.
  std::optional<GgufType> block = std::nullopt;
  // Columns that lie in another order than they are used in.
  TiledHeads tiled_columns = {};
};

class Checkpoint final : public TensorCatalog {
 public:
  static Result<Checkpoint> open(Context& context, const std::string& path);

  const CatalogEntry* find(std::string_view name) const override;
  // nullptr when there is no such tensor.
  const CheckpointTensor* find_tensor(std::string_view name) const;
  // Sorted by name.
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  const ModelDirectory& directory() const { return directory_; }
  const MappedFile& shard(const CheckpointTensor& tensor) const { return shards_[tensor.shard]; }
  std::span<const MappedFile> shards() const { return shards_; }
  size_t shard_count() const { return shards_.size(); }
  int64_t data_bytes() const;  // of all tensors
  // The keys of a GGUF model, null for others.
  const GgufMetadata* gguf() const { return gguf_.get(); }
  // Marks the tensors of a GGUF model that lie in another order than they are used in, and replaces
  // those that hold -exp(x) by x, in memory of their own.
  Status undo_conversion(const GgufModelPlan& plan);
  // kCorrupt when a shard changed since it was opened.
  Status check_unchanged() const;

 private:
  explicit Checkpoint(ModelDirectory directory) : directory_(std::move(directory)) {}
  static Result<Checkpoint> open_gguf(Context& context, GgufFiles files);
  Status add_shard(Context& context, const std::string& name);
  Status add_gguf_shard(Context& context, const GgufFiles& files, size_t index);
  Status sort_and_check_unique();
  Status check_against(const SafetensorsIndex& index) const;

  ModelDirectory directory_;
  std::vector<MappedFile> shards_;
  std::vector<CheckpointTensor> tensors_;
  std::unique_ptr<const GgufMetadata> gguf_;
  std::vector<std::vector<float>> logarithms_;  // what undo_conversion() made
};

}  // namespace motley
