#include "base/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "base/aligned_buffer.h"
#include "support/test_files.h"

namespace motley {
namespace {

size_t address_space_bytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  EXPECT_GT(pages, 0u);
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(HugePages, ReservesAlignedAddressesThatCanBeReplaced) {
  constexpr size_t kBytes = kHugePageBytes + 4096;
  std::byte* base = reserve_huge_aligned(kBytes);
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % kHugePageBytes, 0u);
  void* mapped =
      mmap(base, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ASSERT_EQ(mapped, base);
  base[kBytes - 1] = std::byte{7};
  EXPECT_EQ(munmap(base, kBytes), 0);
}

TEST(HugePages, RefusesWhatNoAddressSpaceHolds) {
  EXPECT_EQ(reserve_huge_aligned(SIZE_MAX - 4095), nullptr);
  EXPECT_EQ(reserve_huge_aligned(size_t{1} << 62), nullptr);
}

TEST(HugePages, MapsLargeRegionsAlignedAndLeavesNothingBehindOnFailure) {
  void* memory =
      map_aligned(kHugePageBytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % kHugePageBytes, 0u);
  static_cast<std::byte*>(memory)[kHugePageBytes] = std::byte{1};
  EXPECT_EQ(munmap(memory, kHugePageBytes + 1), 0);
  constexpr size_t kLarge = size_t{64} << 20;
  constexpr int kTimes = 64;
  const size_t before = address_space_bytes();
  for (int i = 0; i < kTimes; ++i) {  // no such file
    EXPECT_EQ(map_aligned(kLarge, PROT_READ, MAP_SHARED, -1), MAP_FAILED);
    EXPECT_EQ(errno, EBADF);
  }
  EXPECT_LT(address_space_bytes(), before + kTimes / 2 * kLarge);
}

TEST(HugePages, CountsOnlyMappingsInsideTheRegion) {
  const TemporaryDirectory directory;
  directory.write("smaps",
                  "00200000-00600000 r--s 00000000 fe:00 12  /model\n"
                  "Size:               4096 kB\n"
                  "AnonHugePages:         0 kB\n"
                  "FilePmdMapped:      2048 kB\n"
                  "VmFlags: rd sh mr hg\n"
                  "00600000-00800000 rw-p 00000000 00:00 0\n"
                  "AnonHugePages:      2048 kB\n");
  const auto* first = reinterpret_cast<const std::byte*>(uintptr_t{0x200000});
  EXPECT_EQ(huge_mapped_bytes({first, 0x400000}, directory / "smaps"), 2048u * 1024);
  EXPECT_EQ(huge_mapped_bytes({first, 0x400001}, directory / "smaps"), 4096u * 1024);
  EXPECT_EQ(huge_mapped_bytes({first + 4096, 0x1000}, directory / "smaps"), 0u);
  EXPECT_EQ(huge_mapped_bytes({first, 0x400000}, directory / "missing"), 0u);
}

TEST(HugePages, LargeBuffersAreAligned) {
  const auto buffer = AlignedBuffer::allocate(3 * kHugePageBytes + 1);
  ASSERT_TRUE(buffer.is_ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kHugePageBytes, 0u);
}

}  // namespace
}  // namespace motley
