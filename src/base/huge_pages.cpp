#include "base/huge_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

namespace motley {

std::byte* reserve_huge_aligned(size_t bytes) {
  if (bytes > SIZE_MAX - kHugePageBytes) return nullptr;
  const size_t reserved = bytes + kHugePageBytes;
  void* memory = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* base = static_cast<std::byte*>(memory);
  const auto address = reinterpret_cast<uintptr_t>(base);
  const size_t head = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
  if (head > 0) munmap(base, head);
  munmap(base + head + bytes, reserved - head - bytes);
  return base + head;
}

void* map_aligned(size_t bytes, int protection, int flags, int descriptor) {
  if (bytes < kHugePageBytes) return mmap(nullptr, bytes, protection, flags, descriptor, 0);
  constexpr size_t kPage = 4096;
  const size_t whole_pages = bytes > SIZE_MAX - kPage ? bytes : (bytes + kPage - 1) / kPage * kPage;
  std::byte* place = reserve_huge_aligned(whole_pages);
  if (place != nullptr) flags |= MAP_FIXED;
  void* memory = mmap(place, bytes, protection, flags, descriptor, 0);
  if (memory != MAP_FAILED) {
    madvise(memory, bytes, MADV_HUGEPAGE);
  } else if (place != nullptr) {
    const int reason = errno;
    munmap(place, whole_pages);
    errno = reason;
  }
  return memory;
}

HugeMappings::HugeMappings(const std::string& smaps) {
  std::ifstream file(smaps);
  for (std::string line; std::getline(file, line);) {
    unsigned long long first = 0, second = 0;
    char name[32];
    if (std::sscanf(line.c_str(), "%llx-%llx ", &first, &second) == 2) {
      mappings_.push_back({static_cast<uintptr_t>(first), 0});
    } else if (!mappings_.empty() &&
               std::sscanf(line.c_str(), "%31[A-Za-z]: %llu kB", name, &first) == 2) {
      const std::string_view key = name;
      if (key == "AnonHugePages" || key == "ShmemPmdMapped" || key == "FilePmdMapped") {
        mappings_.back().huge_bytes += first * 1024;
      }
    }
  }
}

uint64_t HugeMappings::bytes_in(std::span<const std::byte> region) const {
  const auto begin = reinterpret_cast<uintptr_t>(region.data());
  const uintptr_t end = begin + region.size();
  uint64_t bytes = 0;
  for (const Mapping& mapping : mappings_) {
    if (mapping.begin >= begin && mapping.begin < end) bytes += mapping.huge_bytes;
  }
  return bytes;
}

}  // namespace motley
