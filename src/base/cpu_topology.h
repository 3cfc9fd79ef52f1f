// The processors this process may use: affinity mask, cgroup quota, physical cores.
#pragma once

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

}  // namespace motley
