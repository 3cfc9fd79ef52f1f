#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <string>

#include "base/huge_pages.h"

namespace motley {

Result<AlignedBuffer> AlignedBuffer::allocate(size_t bytes) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  const size_t unit = bytes >= kHugePageBytes ? kHugePageBytes : kAlignment;
  if (bytes > SIZE_MAX - unit) return resource_exhausted("allocation size overflows");
  const size_t mapped = (bytes + unit - 1) / unit * unit;
  void* memory = map_aligned(mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (memory == MAP_FAILED) {
    return resource_exhausted("cannot allocate " + std::to_string(bytes) + " bytes");
  }
  buffer.data_ = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(memory), Unmap(mapped));
  buffer.size_ = bytes;
  return buffer;
}

void AlignedBuffer::Unmap::operator()(std::byte* data) const {
  munmap(data, mapped_bytes);
}

}  // namespace motley
