// What processor, memory and kernel settings mean for motley.
//
// Each check is a judgement of plain facts, so that tests can state any machine; read_..() gets the
// facts of this one. Thread rule: pure functions, and reads of /proc and /sys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cpu_topology.h"
#include "base/system_memory.h"
#include "engine/doctor/finding.h"
#include "ops/cpu/cpu_backend.h"

namespace motley {

struct ProcessorFacts {
  std::string model;
  std::vector<CpuIsa> sets;  // ascending; not empty
  CpuIsa chosen = CpuIsa::kPortable;
  bool is_arm = false;
};
Finding judge_processor(const ProcessorFacts& facts);

Finding judge_cores(const CpuTopology& topology, int numa_nodes);

Finding judge_memory(const SystemMemory& memory);

struct GroupFacts {
  std::string version;  // "v1", "v2"; empty: none
  SystemMemory memory;
};
Finding judge_control_group(const GroupFacts& facts);

struct LockFacts {
  bool is_unlimited = false;
  int64_t limit_bytes = 0;
  bool has_swap = false;
};
Finding judge_locked_memory(const LockFacts& facts);

// The content of transparent_hugepage/enabled; empty: the kernel has none.
Finding judge_huge_pages(const std::string& setting);

// The name of the backend that reads would use, and why it is not io_uring.
Finding judge_reads(const std::string& backend, const std::string& reason);

// `built`: the component of the build, "13.0" or "not built"; names of devices the driver shows.
Finding judge_gpu(const std::string& built, const std::vector<std::string>& devices);

// All of them, of this machine. `cpu` is the value of --cpu. `root` is put before /proc and /sys.
Result<std::vector<Finding>> check_system(const std::string& cpu, const std::string& root = "");

}  // namespace motley
