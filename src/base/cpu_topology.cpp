#include "base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <utility>

namespace motley {
namespace {

int read_int(const std::string& path, int fallback) {
  std::ifstream file(path);
  int value = fallback;
  return file >> value ? value : fallback;
}

double read_quota_cores() {
  std::string quota;
  double period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> quota >> period) {
    if (quota == "max" || period <= 0) return 0;
    return std::strtod(quota.c_str(), nullptr) / period;
  }
  const int v1_quota = read_int("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", -1);
  const int v1_period = read_int("/sys/fs/cgroup/cpu/cpu.cfs_period_us", 0);
  return v1_quota > 0 && v1_period > 0 ? static_cast<double>(v1_quota) / v1_period : 0;
}

}  // namespace

int CpuTopology::default_threads() const {
  int threads = physical_cores;
  if (quota_cores > 0) threads = std::min(threads, static_cast<int>(std::ceil(quota_cores)));
  return std::max(threads, 1);
}

CpuTopology read_cpu_topology() {
  CpuTopology topology;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) CPU_SET(0, &mask);
  std::set<std::pair<int, int>> seen;  // (package, core)
  std::vector<int> siblings;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    const std::string base = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::pair<int, int> core = {read_int(base + "physical_package_id", 0),
                                      read_int(base + "core_id", cpu)};
    (seen.insert(core).second ? topology.cpus : siblings).push_back(cpu);
  }
  topology.physical_cores = static_cast<int>(std::max<size_t>(seen.size(), 1));
  topology.cpus.insert(topology.cpus.end(), siblings.begin(), siblings.end());
  topology.quota_cores = read_quota_cores();
  return topology;
}

std::string cpu_model_name(const std::string& root) {
  constexpr size_t kMostCharacters = 100;
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos || !line.starts_with("model name")) continue;
    std::string name = line.substr(colon + 2, kMostCharacters);
    std::erase_if(name, [](char c) { return c < ' ' || c > '~'; });
    if (!name.empty()) return name;
  }
  return "unknown processor";
}

int numa_nodes(const std::string& root) {
  std::error_code error;
  int nodes = 0;
  for (std::filesystem::directory_iterator entry(root + "/sys/devices/system/node", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    const bool is_node = name.starts_with("node") && name.size() > 4 &&
                         name.find_first_not_of("0123456789", 4) == std::string::npos;
    nodes += is_node ? 1 : 0;
  }
  return std::max(nodes, 1);
}

}  // namespace motley
