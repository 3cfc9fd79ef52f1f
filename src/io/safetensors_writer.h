// Writes a safetensors file of known tensors as a stream, at disk speed.
//
// All tensors are declared first, which fixes the header and every offset; bytes then arrive in
// any order and from any thread. The data start is a multiple of 64; tensors are laid out so that
// each begins at a multiple of 64 as far as sizes allow (exact tiling forbids padding, so tensors
// whose size is a multiple of 64 come first, then 32, ...). The file appears under its name only
// when finish() has made it durable.
// Thread rule: write() from any thread for disjoint ranges; create() and finish() from one.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fault_points.h"
#include "base/status.h"
#include "io/file_writer.h"
#include "numeric/dtype.h"

namespace motley {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  int64_t bytes() const;
};

class SafetensorsWriter {
 public:
  // kInvalidArgument for a duplicate name or a shape that the reader would refuse.
  static Result<SafetensorsWriter> create(
      FaultPoints& faults, const std::string& path, std::vector<TensorDeclaration> tensors,
      const std::vector<std::pair<std::string, std::string>>& metadata = {{"format", "pt"}});

  int64_t file_bytes() const { return file_bytes_; }
  // Bytes of declared tensor `index` (order of the declaration), from `offset` bytes into it.
  Status write(size_t index, int64_t offset, std::span<const std::byte> bytes);
  // The same for a whole tensor of which T are the elements.
  template <typename T>
  Status write_all(size_t index, std::span<const T> elements) {
    return write(index, 0, std::as_bytes(elements));
  }
  // kInvalidArgument unless as many bytes were written as were declared.
  Status finish();

 private:
  explicit SafetensorsWriter(FileWriter file) : file_(std::move(file)) {}
  FileWriter file_;
  std::vector<TensorDeclaration> tensors_;
  std::vector<int64_t> offsets_;  // from the file start, per declared tensor
  int64_t data_bytes_ = 0;
  int64_t file_bytes_ = 0;
  std::unique_ptr<std::atomic<int64_t>> written_ = std::make_unique<std::atomic<int64_t>>(0);
};

// DIR/model.safetensors.index.json: `total_bytes` of data, and the shard of each tensor.
Status write_safetensors_index(FaultPoints& faults, const std::string& directory,
                               const std::map<std::string, std::string>& shard_of_tensor,
                               int64_t total_bytes);

}  // namespace motley
