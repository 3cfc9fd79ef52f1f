// The head of a GGUF file, read as hostile input.
//
// Layout, little-endian: "GGUF", u32 version, u64 tensors, u64 keys; keys (text, u32 type, value);
// tensors (text, u32 rank, u64 dims fastest first, u32 type, u64 offset); data at the next multiple
// of general.alignment. A text is a u64 length and bytes; an array a u32 type, a u64 count and
// elements. Checked: every count and length against the bytes that are left before anything is
// allocated; sizes of names and texts; array element types (arrays of arrays are refused); UTF-8 is
// left to who uses a text; duplicate keys and tensors; rank, products of dims, whole blocks per
// row; tensors lie one after the other, each at the next multiple of the alignment, up to the end.
// Versions 2 and 3 are read. Source: ggml docs/gguf.md and src/gguf.cpp.
// Errors: kCorrupt, or kUnsupported for a version or element type that this build does not read.
// Thread rule: plain functions and values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "numeric/dtype.h"
#include "numeric/gguf_block.h"
#include "spec/gguf_metadata.h"

namespace motley {

struct GgufTensor {
  std::string name;
  DType dtype = DType::kF32;      // U8 when quantised
  std::optional<GgufType> block;  // set when quantised
  std::vector<int64_t> shape;     // in values, row-major: the reverse of the file's dims
  int64_t begin = 0;              // bytes from the data start
  int64_t end = 0;

  // Of all values. Rows must be whole blocks, and the product of the shape must fit.
  int64_t bytes() const;
};

struct GgufHeader {
  static constexpr int64_t kMaxTensors = 1'000'000;
  static constexpr int64_t kMaxKeys = 65'536;
  static constexpr int64_t kMaxNameBytes = 512;
  static constexpr int64_t kMaxTextBytes = int64_t{16} << 20;
  static constexpr int64_t kMaxElements = 8'000'000;  // of an array
  static constexpr int64_t kMaxRank = 4;
  static constexpr int64_t kMaxAlignment = int64_t{1} << 16;

  int64_t version = 0;
  int64_t alignment = 32;
  int64_t data_start = 0;           // bytes from the file start
  std::vector<GgufTensor> tensors;  // in order of their bytes
  GgufMetadata metadata;
};

// Touches only the head of `file`, which is the whole file, mapped or in memory.
Result<GgufHeader> read_gguf_header(std::span<const std::byte> file);

// A file's number for an element type, as writers need it.
uint32_t gguf_type_number(const GgufTensor& tensor);

}  // namespace motley
