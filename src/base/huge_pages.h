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

namespace motley {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// Address space without access, a multiple of kHugePageBytes, to be replaced by a mapping with
// MAP_FIXED. Undone by munmap of `bytes`, which must be a multiple of the page size. nullptr when
// the address space is spent.
std::byte* reserve_huge_aligned(size_t bytes);

// How much of a region is mapped by pages of 2 MiB. Counts whole mappings that begin inside the
// region. 0 where the kernel does not tell. `smaps` is a parameter for tests.
uint64_t huge_mapped_bytes(std::span<const std::byte> region,
                           const std::string& smaps = "/proc/self/smaps");

}  // namespace motley
