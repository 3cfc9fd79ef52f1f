// Head of a GGUF file: whatever is accepted lies inside the file, in order, and has true sizes.
#include <cstdlib>

#include "io/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto header = motley::read_gguf_header(std::as_bytes(std::span(data, size)));
  if (!header.is_ok()) return 0;
  int64_t at = 0;
  for (const auto& tensor : header->tensors) {
    if (tensor.begin < at || tensor.begin % header->alignment != 0) std::abort();
    if (tensor.end - tensor.begin != tensor.bytes()) std::abort();
    at = tensor.end;
  }
  if (at > 0 && header->data_start + at > static_cast<int64_t>(size)) std::abort();
  for (const auto& [key, value] : header->metadata.entries()) {
    if (header->metadata.find(key) != &value) std::abort();
  }
  return 0;
}
