#include "base/huge_pages.h"

#include <sys/mman.h>

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

uint64_t huge_mapped_bytes(std::span<const std::byte> region, const std::string& smaps) {
  const auto begin = reinterpret_cast<uintptr_t>(region.data());
  const uintptr_t end = begin + region.size();
  std::ifstream file(smaps);
  uint64_t bytes = 0;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long long first = 0, second = 0;
    char name[32];
    if (std::sscanf(line.c_str(), "%llx-%llx ", &first, &second) == 2) {
      inside = first >= begin && first < end;
    } else if (inside && std::sscanf(line.c_str(), "%31[A-Za-z]: %llu kB", name, &first) == 2) {
      const std::string_view key = name;
      if (key == "AnonHugePages" || key == "ShmemPmdMapped" || key == "FilePmdMapped") {
        bytes += first * 1024;
      }
    }
  }
  return bytes;
}

}  // namespace motley
