// model.safetensors.index.json: whatever is accepted names only files of the directory.
#include <cstdlib>

#include "io/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto index = motley::parse_safetensors_index(text);
  if (!index.is_ok()) return 0;
  for (const auto& [name, shard] : index->shard_of_tensor) {
    if (!motley::is_plain_file_name(shard)) std::abort();
  }
  return 0;
}
