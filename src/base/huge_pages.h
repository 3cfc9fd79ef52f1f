// Large mappings in pages of 2 MiB.
//
// A matrix that is read once per token meets a new 4 KiB page every 4 KiB: each costs a walk of the
// page tables, which inside a virtual machine has two stages. Measured on such a machine, 2 threads
// read a file at 15 GB/s through 4 KiB pages and at 60 GB/s through 2 MiB pages. The kernel uses
// the latter only where addresses (and file offsets) are multiples of 2 MiB.
// Source: Documentation/admin-guide/mm/transhuge.rst and proc_pid_smaps(5) of Linux.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace motley {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// Address space without access, a multiple of kHugePageBytes, to be replaced by a mapping with
// MAP_FIXED. Undone by munmap of `bytes`, which must be a multiple of the page size. nullptr when
// the address space is spent.
std::byte* reserve_huge_aligned(size_t bytes);

// mmap at an offset of 0, for `bytes` of at least 1. What is large enough gets an aligned address
// and asks for huge pages (a hint). MAP_FAILED and errno as of mmap, nothing left behind.
void* map_aligned(size_t bytes, int protection, int flags, int descriptor);

// How much of each mapping of this process lies in pages of 2 MiB, as of construction. The kernel
// walks the page tables for it, so one look serves many regions.
class HugeMappings {
 public:
  explicit HugeMappings(const std::string& smaps = "/proc/self/smaps");  // a parameter for tests
  // Of the mappings that begin inside the region; 0 where the kernel does not tell.
  uint64_t bytes_in(std::span<const std::byte> region) const;

 private:
  struct Mapping {
    uintptr_t begin = 0;
    uint64_t huge_bytes = 0;
  };
  std::vector<Mapping> mappings_;
};

inline uint64_t huge_mapped_bytes(std::span<const std::byte> region,
                                  const std::string& smaps = "/proc/self/smaps") {
  return HugeMappings(smaps).bytes_in(region);
}

}  // namespace motley
