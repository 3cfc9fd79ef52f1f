#include "base/cpu_topology.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "support/test_files.h"

namespace motley {
namespace {

// Stands for "/".
class FakeRoot {
 public:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path inside = name.substr(1);
    std::filesystem::create_directories(std::filesystem::path(folder_.path()) /
                                        inside.parent_path());
    folder_.write(inside.string(), text);
  }
  const std::string& path() const { return folder_.path(); }

 private:
  TemporaryDirectory folder_;
};

TEST(CpuModelName, IsTheFirstThatIsStated) {
  const FakeRoot root;
  root.write("/proc/cpuinfo",
             "processor\t: 0\nmodel\t\t: 2\nmodel name\t: Fast\x1b[1m One\nmodel name\t: Other\n");
  EXPECT_EQ(cpu_model_name(root.path()), "Fast[1m One");
  root.write("/proc/cpuinfo", "model name\t: " + std::string(500, 'x') + "\n");
  EXPECT_EQ(cpu_model_name(root.path()), std::string(100, 'x'));
  root.write("/proc/cpuinfo", "CPU implementer : 0x41\n");
  EXPECT_EQ(cpu_model_name(root.path()), "unknown processor");
  EXPECT_EQ(cpu_model_name("/nowhere"), "unknown processor");
}

TEST(NumaNodes, CountsThemAndNothingElse) {
  const FakeRoot root;
  EXPECT_EQ(numa_nodes(root.path()), 1);
  for (const char* name : {"node0", "node1", "node10", "nodes", "has_cpu"}) {
    root.write(std::string("/sys/devices/system/node/") + name + "/x", "");
  }
  EXPECT_EQ(numa_nodes(root.path()), 3);
}

TEST(CpuTopology, HasAtLeastOneThread) {
  EXPECT_GE(read_cpu_topology().default_threads(), 1);
  CpuTopology limited;
  limited.physical_cores = 8;
  limited.quota_cores = 2.5;
  EXPECT_EQ(limited.default_threads(), 3);
}

}  // namespace
}  // namespace motley
