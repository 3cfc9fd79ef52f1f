// Header of a safetensors file: whatever is accepted tiles the file and has true sizes.
#include <cstdlib>

#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto header = motley::read_safetensors_header(file);
  if (!header.is_ok()) return 0;
  int64_t at = 0;
  for (const auto& tensor : header->tensors) {
    int64_t bytes = motley::dtype_bytes(tensor.dtype);
    for (const int64_t dim : tensor.shape) bytes *= dim;
    if (tensor.begin != at || tensor.end - tensor.begin != bytes) std::abort();
    at = tensor.end;
  }
  if (header->data_start + at != static_cast<int64_t>(size)) std::abort();
  return 0;
}
