// The processors this process may use: affinity mask, cgroup quota, physical cores.
#pragma once

#include <string>
#include <vector>

namespace motley {

struct CpuTopology {
  // One logical CPU of each physical core first, then the remaining siblings.
  std::vector<int> cpus;
  int physical_cores = 1;
  // CPU time the control group grants, in cores; 0 when unlimited.
  double quota_cores = 0;

  // Threads to use by default: physical cores, at most the quota rounded up.
  int default_threads() const;
};

CpuTopology read_cpu_topology();

// As the system names the processor, printable and at most 100 characters; "unknown processor" when
// it does not. `root` is put before /proc, for tests.
std::string cpu_model_name(const std::string& root = "");
// Nodes of memory that the machine has; at least 1. `root` is put before /sys.
int numa_nodes(const std::string& root = "");

}  // namespace motley
