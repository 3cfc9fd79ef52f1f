#include "engine/doctor/system_checks.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/version.h"
#include "io/stream/read_backend.h"
#include "spec/config_json.h"

namespace motley {
namespace {

constexpr double kLeastMemoryGb = 0.15;  // the pocket model
constexpr double kLittleMemoryGb = 2.0;  // below it few models have their dense weights
constexpr int64_t kUsefulLockBytes = int64_t{1} << 30;
constexpr size_t kMostDevices = 64;

double gigabytes(uint64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

// Empty when it cannot be read.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.substr(0, 1000);
}

std::string group_version(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string version;
  for (std::string line; std::getline(file, line);) {
    if (line.find(":memory") != std::string::npos) return "v1";
    if (line.starts_with("0::")) version = "v2";
  }
  return version;
}

LockFacts read_lock_facts(const std::string& root) {
  LockFacts facts;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    facts.is_unlimited = limit.rlim_cur == RLIM_INFINITY;
    if (!facts.is_unlimited) facts.limit_bytes = static_cast<int64_t>(limit.rlim_cur);
  }
  std::ifstream swaps(root + "/proc/swaps");
  std::string line;
  facts.has_swap = std::getline(swaps, line) && std::getline(swaps, line) && !line.empty();
  return facts;
}

std::vector<std::string> read_gpus(const std::string& root) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(root + "/proc/driver/nvidia/gpus", error);
  for (; !error && entry != std::filesystem::directory_iterator() && names.size() < kMostDevices;
       entry.increment(error)) {
    const std::string line = first_line(entry->path() / "information");  // "Model:   NVIDIA ..."
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    names.push_back(begin == std::string::npos ? "a GPU" : line.substr(begin));
  }
  return names;
}

std::string built_cuda() {
  for (const std::string_view component : build_info().components) {
    if (component.starts_with("CUDA ")) return std::string(component.substr(5));
  }
  return "not built";
}

}  // namespace

Finding judge_processor(const ProcessorFacts& facts) {
  std::string others;
  std::string list;
  for (const CpuIsa set : facts.sets) {
    list += (list.empty() ? "" : ", ") + json_quote(cpu_isa_name(set));
    if (set == facts.chosen) continue;
    others.append(others.empty() ? "" : ", ").append(cpu_isa_name(set));
  }
  Finding finding{
      .topic = "processor",
      .fact = fmt::format("{}: {} kernels (also possible: {})", facts.model,
                          cpu_isa_name(facts.chosen), others.empty() ? "none" : others)};
  finding.details =
      fmt::format("\"model\": {}, \"instruction_set\": {}, \"available\": [{}]",
                  json_quote(facts.model), json_quote(cpu_isa_name(facts.chosen)), list);
  switch (facts.chosen) {
    case CpuIsa::kAmx:
      finding.meaning = "tiles for prefill, vectors of 512 bits for decode: the best there is";
      break;
    case CpuIsa::kAvx512:
      finding.meaning = "decode at its best; prefill would gain from AMX, which this lacks";
      break;
    case CpuIsa::kNeon:
      finding.meaning = "the best kernels for this processor";
      break;
    case CpuIsa::kAvx2:
      finding.meaning = "decode near the memory's rate; prefill at half of what AVX-512 gives";
      break;
    case CpuIsa::kPortable:
      finding.health = Health::kSlow;
      finding.meaning = "no vector instructions that motley has kernels for: several times slower";
      finding.remedy =
          facts.is_arm ? "needs dot product and bfloat16 (Armv8.6 or later)"
                       : "needs AVX2, FMA and F16C; in a virtual machine give the guest the host's "
                         "processor type";
      break;
  }
  const bool is_best = facts.chosen == facts.sets.back();
  if (!is_best) {
    finding.health = Health::kSlow;
    finding.remedy = fmt::format("--cpu or MOTLEY_CPU chose it; {} is possible",
                                 cpu_isa_name(facts.sets.back()));
  }
  return finding;
}

Finding judge_cores(const CpuTopology& topology, int numa_nodes) {
  Finding finding{.topic = "cores"};
  finding.fact =
      fmt::format("{} cores, {} logical processors, {} memory node{}", topology.physical_cores,
                  topology.cpus.size(), numa_nodes, numa_nodes == 1 ? "" : "s");
  if (topology.quota_cores > 0) {
    finding.fact += fmt::format(", {:.1f} cores of time granted", topology.quota_cores);
  }
  finding.meaning =
      fmt::format("{} threads unless --threads says otherwise", topology.default_threads());
  finding.details = fmt::format(
      "\"cores\": {}, \"logical\": {}, \"numa_nodes\": {}, \"quota_cores\": {:.2f}, "
      "\"threads\": {}",
      topology.physical_cores, topology.cpus.size(), numa_nodes, topology.quota_cores,
      topology.default_threads());
  if (topology.quota_cores > 0 && topology.quota_cores < topology.physical_cores) {
    finding.health = Health::kSlow;
    finding.remedy = "the control group grants less time than there are cores (cpu.max)";
  }
  if (numa_nodes > 1) {
    finding.health = Health::kSlow;
    finding.meaning += "; weights lie on the node that first touched them, far from other threads";
    finding.remedy =
        "start with numactl --interleave=all, or bind to one node that holds the model";
  }
  return finding;
}

Finding judge_memory(const SystemMemory& memory) {
  const double now_gb = gigabytes(memory.available_bytes);
  Finding finding{.topic = "memory"};
  finding.fact =
      fmt::format("{:.1f} GB, {:.1f} of it available", gigabytes(memory.total_bytes), now_gb);
  finding.meaning = "what --memory is when it is not given; `motley plan MODEL` divides it";
  finding.details = fmt::format("\"total_bytes\": {}, \"available_bytes\": {}", memory.total_bytes,
                                memory.available_bytes);
  if (now_gb < kLeastMemoryGb) {
    finding.health = Health::kBroken;
    finding.remedy = "not even the pocket model fits: end other programs";
  } else if (now_gb < kLittleMemoryGb) {
    finding.health = Health::kSlow;
    finding.remedy = "only small models have room for what must be in memory: end other programs";
  }
  return finding;
}

Finding judge_control_group(const GroupFacts& facts) {
  Finding finding{.topic = "memory limit"};
  const auto& limit = facts.memory.group_limit_bytes;
  finding.details =
      fmt::format("\"cgroup\": {}, \"limit_bytes\": {}, \"available_bytes\": {}",
                  facts.version.empty() ? "null" : json_quote(facts.version),
                  limit ? fmt::format("{}", *limit) : "null",
                  limit ? fmt::format("{}", *facts.memory.group_available_bytes) : "null");
  if (!limit) {
    finding.fact = facts.version.empty() ? "no control groups"
                                         : fmt::format("none (control groups {})", facts.version);
    finding.meaning = "all of the machine's memory may be used";
    return finding;
  }
  const uint64_t available = facts.memory.group_available_bytes.value_or(0);
  finding.fact = fmt::format("{:.2f} GB by control groups {}, {:.2f} of it available",
                             gigabytes(*limit), facts.version, gigabytes(available));
  finding.meaning = "motley plans within it; more would end the program";
  if (gigabytes(available) < kLeastMemoryGb) {
    finding.health = Health::kBroken;
    finding.remedy = "raise the limit (memory.max, docker run --memory, MemoryMax= of systemd)";
  }
  return finding;
}

Finding judge_locked_memory(const LockFacts& facts) {
  Finding finding{.topic = "locking"};
  finding.details = fmt::format("\"limit_bytes\": {}, \"swap\": {}",
                                facts.is_unlimited ? "null" : fmt::format("{}", facts.limit_bytes),
                                facts.has_swap);
  finding.fact = facts.is_unlimited ? "memory may be locked without limit"
                                    : fmt::format("{:.1f} MB of memory may be locked",
                                                  static_cast<double>(facts.limit_bytes) * 1e-6);
  finding.fact += facts.has_swap ? "; swap is on" : "; no swap";
  finding.meaning = "weights that every token needs stay in memory";
  if (facts.is_unlimited || facts.limit_bytes >= kUsefulLockBytes || !facts.has_swap) {
    return finding;
  }
  finding.health = Health::kSlow;
  finding.meaning = "weights that every token needs may be swapped out under a budget";
  finding.remedy = "ulimit -l unlimited, LimitMEMLOCK=infinity of systemd, or turn swap off";
  return finding;
}

Finding judge_huge_pages(const std::string& setting) {
  Finding finding{.topic = "huge pages"};
  finding.details = fmt::format("\"setting\": {}", json_quote(setting));
  const bool is_on = setting.find("[always]") != std::string::npos ||
                     setting.find("[madvise]") != std::string::npos;
  finding.fact =
      setting.empty() ? "the kernel has none" : "transparent_hugepage/enabled: " + setting;
  finding.meaning = "weights lie in pages of 2 MiB";
  if (is_on) return finding;
  finding.health = Health::kSlow;
  finding.meaning =
      "weights lie in pages of 4 KiB: decode was 2.8 times slower so in a virtual machine";
  finding.remedy = "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
  return finding;
}

Finding judge_reads(const std::string& backend, const std::string& reason) {
  Finding finding{.topic = "reads"};
  finding.details =
      fmt::format("\"backend\": {}, \"reason\": {}", json_quote(backend), json_quote(reason));
  finding.fact = backend == "io_uring" ? "io_uring works" : "no io_uring: " + reason;
  if (backend == "io_uring") {
    finding.meaning = "streamed experts are read with one system call for many reads";
    return finding;
  }
  finding.health = Health::kSlow;
  finding.meaning = "a pool of threads reads streamed experts: the same bytes, more processor time";
  finding.remedy =
      "sysctl kernel.io_uring_disabled=0; in a container allow io_uring_setup in its seccomp "
      "profile";
  return finding;
}

Finding judge_gpu(const std::string& built, const std::vector<std::string>& devices) {
  Finding finding{.topic = "GPU"};
  std::string names;
  std::string list;
  for (const std::string& name : devices) {
    names += (names.empty() ? "" : ", ") + name;
    list += (list.empty() ? "" : ", ") + json_quote(name);
  }
  const bool is_built = built != "not built";
  finding.details =
      fmt::format("\"cuda\": {}, \"devices\": [{}]", is_built ? json_quote(built) : "null", list);
  finding.fact = fmt::format("{}; {}", names.empty() ? "the driver shows none" : names,
                             is_built ? "built with CUDA " + built : "built without CUDA");
  finding.meaning = "`motley run` computes on the processor; a GPU is not used yet";
  return finding;
}

Result<std::vector<Finding>> check_system(const std::string& cpu, const std::string& root) {
  ProcessorFacts processor{.model = cpu_model_name(root), .sets = available_cpu_isas()};
  MOTLEY_ASSIGN_OR_RETURN(processor.chosen, choose_cpu_isa(cpu));
  processor.is_arm = build_info().processor == "aarch64";
  MOTLEY_ASSIGN_OR_RETURN(const SystemMemory memory, read_system_memory(root));
  const auto reads = open_read_backend({}, {.capacity = 1, .threads = 1});
  std::vector<Finding> findings = {
      judge_processor(processor),
      judge_cores(read_cpu_topology(), numa_nodes(root)),
      judge_memory(memory),
      judge_control_group({group_version(root), memory}),
      judge_locked_memory(read_lock_facts(root)),
      judge_huge_pages(first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled")),
  };
  if (reads.is_ok()) {
    findings.push_back(judge_reads(std::string(reads->backend->name()), reads->reason));
  } else {
    findings.push_back({.topic = "reads",
                        .health = Health::kBroken,
                        .fact = reads.status().message(),
                        .meaning = "experts cannot be streamed",
                        .remedy = "allow the program a thread (ulimit -u)"});
  }
  findings.push_back(judge_gpu(built_cuda(), read_gpus(root)));
  return findings;
}

}  // namespace motley
