// Writes a GGUF file of version 3: keys and tensors are declared first, which fixes every offset;
// bytes then arrive in any order. The file appears under its name only when finish() has made it
// durable.
// Thread rule: write() from any thread for disjoint ranges; create() and finish() from one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fault_points.h"
#include "base/status.h"
#include "io/file_writer.h"
#include "io/gguf.h"

namespace motley {

// The head of a file: everything before the data, padded to `alignment`. Sets begin and end of
// `tensors`, which lie in the order given. Natural numbers are written with 32 bits where they fit,
// lists of numbers too, and floating-point ones as float32, as in files of other programs.
std::vector<std::byte> make_gguf_head(const GgufMetadata& metadata, int64_t alignment,
                                      std::vector<GgufTensor>* tensors);

class GgufWriter {
 public:
  // Rows of `tensors` are whole blocks, shapes not empty.
  static Result<GgufWriter> create(FaultPoints& faults, const std::string& path,
                                   const GgufMetadata& metadata, std::vector<GgufTensor> tensors);

  int64_t file_bytes() const { return file_bytes_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  // Bytes of declared tensor `index`, from `offset` bytes into it.
  Status write(size_t index, int64_t offset, std::span<const std::byte> bytes);
  Status finish();

 private:
  explicit GgufWriter(FileWriter file) : file_(std::move(file)) {}
  FileWriter file_;
  std::vector<GgufTensor> tensors_;
  int64_t data_start_ = 0;
  int64_t file_bytes_ = 0;
};

}  // namespace motley
