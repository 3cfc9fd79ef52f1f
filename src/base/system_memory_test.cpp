#include "base/system_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <thread>

namespace motley {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uint64_t kGib = uint64_t{1} << 30;

// A made-up /proc and /sys below a temporary folder.
class FakeRoot : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ =
        fs::path(::testing::TempDir()) /
        ("memory_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    put("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  SystemMemory read() { return read_system_memory(root_.string()).value(); }

  fs::path root_;
};

using SystemMemoryTest = FakeRoot;

TEST_F(SystemMemoryTest, WithoutGroupsTheMachineIsTheLimit) {
  const SystemMemory memory = read();
  EXPECT_EQ(memory.usable_total_bytes(), 16 * kGib);
  EXPECT_EQ(memory.usable_now_bytes(), 8 * kGib);
  EXPECT_FALSE(memory.group_limit_bytes.has_value());
}

TEST_F(SystemMemoryTest, VersionTwoTakesTheTightestOnTheWayUp) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/memory.max", "max\n");
  put("sys/fs/cgroup/a/memory.max", "4294967296\n");
  put("sys/fs/cgroup/a/memory.current", "3221225472\n");
  put("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1073741824\nactive_file 1073741824\n");
  const SystemMemory memory = read();
  EXPECT_EQ(memory.group_limit_bytes, 4 * kGib);
  EXPECT_EQ(memory.usable_now_bytes(), 3 * kGib);  // 4 - (3 used - 2 page cache)
}

TEST_F(SystemMemoryTest, VersionTwoInAContainerSeesItsOwnRoot) {
  put("proc/self/cgroup", "0::/docker/0123\n");
  put("sys/fs/cgroup/memory.max", "2147483648\n");
  put("sys/fs/cgroup/memory.current", "1073741824\n");
  EXPECT_EQ(read().usable_now_bytes(), kGib);
}

TEST_F(SystemMemoryTest, VersionOne) {
  put("proc/self/cgroup", "11:cpu,cpuacct:/x\n4:memory:/x\n");
  put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2147483648\n");
  put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1610612736\n");
  put("sys/fs/cgroup/memory/x/memory.stat",
      "inactive_file 7\ntotal_inactive_file 536870912\ntotal_active_file 0\n");
  const SystemMemory memory = read();
  EXPECT_EQ(memory.usable_total_bytes(), 2 * kGib);
  EXPECT_EQ(memory.usable_now_bytes(), kGib);
}

TEST_F(SystemMemoryTest, VersionOneWithoutALimitReportsAHugeNumber) {
  put("proc/self/cgroup", "4:memory:/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(read().group_limit_bytes.has_value());
}

TEST_F(SystemMemoryTest, AGroupOverItsLimitHasNothingLeft) {
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/memory.max", "1073741824\n");
  put("sys/fs/cgroup/memory.current", "2147483648\n");
  EXPECT_EQ(read().usable_now_bytes(), 0U);
}

TEST_F(SystemMemoryTest, NonsenseIsIgnoredInGroupsAndRefusedInMeminfo) {
  put("proc/self/cgroup", "garbage\n:\n0::\n4:memory\n0::nowhere\n");
  put("sys/fs/cgroup/memory.max", "minus one\n");
  EXPECT_FALSE(read().group_limit_bytes.has_value());
  put("proc/meminfo", "MemTotal: 99999999999999999999 kB\n");
  EXPECT_EQ(read_system_memory(root_.string()).status().code(), StatusCode::kCorrupt);
}

TEST_F(SystemMemoryTest, AMissingFileIsNamed) {
  fs::remove(root_ / "proc/meminfo");
  EXPECT_THAT(read_system_memory(root_.string()).status().message(),
              HasSubstr("/proc/meminfo: No such file"));
}

TEST(ProcessMemory, PeakFollowsAnAllocation) {
#if defined(__SANITIZE_THREAD__) || defined(__aarch64__)
  GTEST_SKIP() << "emulators and sanitizers account for memory in their own way";
#endif
  const ProcessMemory before = read_process_memory().value();
  constexpr size_t kBytes = 64 << 20;
  {
    const auto block = std::make_unique<volatile char[]>(kBytes);
    for (size_t i = 0; i < kBytes; i += 4096) block[i] = 1;
    EXPECT_GE(read_process_memory().value().resident_bytes, before.resident_bytes + kBytes / 2);
  }
  EXPECT_GE(read_process_memory().value().peak_resident_bytes, before.resident_bytes + kBytes / 2);
}

TEST(ProcessHandles, CountsFilesAndThreads) {
  const ProcessHandles before = read_process_handles().value();
  EXPECT_GE(before.descriptors, 3);
  EXPECT_GE(before.threads, 1);
  const std::ifstream file("/proc/self/status");
  std::promise<void> end;
  std::thread thread([&end] { end.get_future().wait(); });
  const ProcessHandles during = read_process_handles().value();
  end.set_value();
  thread.join();
  EXPECT_EQ(during.descriptors, before.descriptors + 1);
  EXPECT_EQ(during.threads, before.threads + 1);
}

TEST(SystemMemoryHere, IsPlausible) {
  const SystemMemory memory = read_system_memory().value();
  EXPECT_GT(memory.usable_total_bytes(), 256U << 20);
  EXPECT_LE(memory.usable_now_bytes(), memory.total_bytes);
}

}  // namespace
}  // namespace motley
