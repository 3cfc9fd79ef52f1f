// How much memory this machine has, how much of it this process may use, and what it used.
//
// A control group may grant less than the machine has; the tightest limit on the way from this
// process's group to the root counts, in version 1 and 2 alike. Page cache inside a group counts as
// free, because the kernel drops it under pressure.
// Source: proc(5); Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of Linux.
// Thread rule: reads files only; call from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace motley {

struct SystemMemory {
  uint64_t total_bytes = 0;      // MemTotal
  uint64_t available_bytes = 0;  // MemAvailable
  // The tightest control-group limit and what may still be allocated below it.
  std::optional<uint64_t> group_limit_bytes;
  std::optional<uint64_t> group_available_bytes;

  // What the machine and the group allow in total, and now.
  uint64_t usable_total_bytes() const;
  uint64_t usable_now_bytes() const;
};

// `root` is put before /proc and /sys, for tests.
Result<SystemMemory> read_system_memory(const std::string& root = "");

struct ProcessMemory {
  uint64_t resident_bytes = 0;
  uint64_t peak_resident_bytes = 0;  // since the process began
};
Result<ProcessMemory> read_process_memory(const std::string& root = "");

struct ProcessHandles {
  int64_t descriptors = 0;  // open files, sockets, rings
  int64_t threads = 0;
};
// Of this process. kIoError where /proc does not list them.
Result<ProcessHandles> read_process_handles();

}  // namespace motley
