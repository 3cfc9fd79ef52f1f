// The header of a safetensors file, read as hostile input.
//
// Layout: u64 N (little-endian), N bytes of JSON (spaces may follow it), data. The JSON maps names
// to {dtype, shape, data_offsets [begin, end)} relative to the data start, and "__metadata__" to
// strings. Checked: N against the file and kMaxHeaderBytes before anything is allocated; depth,
// number of names, name length, rank; only natural numbers up to 2^53; duplicate names;
// end - begin = product of the shape x element size; tensors tile the data exactly.
// Source: huggingface/safetensors, README and safetensors/src/tensor.rs.
// Errors: kCorrupt, or kUnsupported for an element type that this build does not know.
// Thread rule: plain functions and values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "numeric/dtype.h"

namespace motley {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the data start
  int64_t end = 0;
};

struct SafetensorsHeader {
  static constexpr int64_t kMaxHeaderBytes = 100'000'000;
  static constexpr size_t kMaxTensors = 1'000'000;
  static constexpr size_t kMaxNameBytes = 512;
  static constexpr size_t kMaxRank = 8;
  static constexpr uint64_t kMaxNumber = uint64_t{1} << 53;

  int64_t data_start = 0;                 // bytes from the file start
  std::vector<SafetensorsEntry> tensors;  // in order of their bytes
  std::vector<std::pair<std::string, std::string>> metadata;
};

// N, from the first eight bytes (fewer if the file is shorter) of a file of `file_bytes` bytes.
Result<int64_t> safetensors_header_bytes(std::span<const std::byte> file_start, int64_t file_bytes);

// The JSON part, of a file whose data is `data_bytes` long. data_start is 8 + json.size().
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, int64_t data_bytes);

// Both steps, for a file in memory or mapped; touches only the header.
Result<SafetensorsHeader> read_safetensors_header(std::span<const std::byte> file);

}  // namespace motley
