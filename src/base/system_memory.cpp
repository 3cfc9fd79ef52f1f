#include "base/system_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <vector>

namespace motley {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// Files of /proc and /sys report no size, so they are read up to a limit.
std::optional<std::string> read_small_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kMaxFileBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::optional<uint64_t> parse_number(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// The number after `key` at the start of a line.
std::optional<uint64_t> find_field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(key)) return parse_number(line.substr(key.size()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::nullopt;
}

Result<uint64_t> kibibyte_field(const std::string& path, std::string_view text,
                                std::string_view key) {
  const auto value = find_field(text, key);
  if (!value || *value > kNoLimit / 1024) {
    return corrupt(fmt::format("{} has no usable line '{}'", path, key));
  }
  return *value * 1024;
}

// Where one version of control groups keeps its figures.
struct GroupFiles {
  std::string mount;  // folder of the root group
  std::string path;   // this process's group below it, "/" or "/a/b"
  const char* limit;
  const char* used;
  const char* inactive_file;  // line of memory.stat
  const char* active_file;
};

// /proc/self/cgroup: "0::/path" (version 2) and "4:memory:/path" (version 1).
std::vector<GroupFiles> find_groups(const std::string& root) {
  std::vector<GroupFiles> groups;
  std::istringstream lines(read_small_file(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      groups.push_back({root + "/sys/fs/cgroup", path, "memory.max", "memory.current",
                        "inactive_file ", "active_file "});
    } else if (controllers.find(",memory,") != std::string::npos) {
      groups.push_back({root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                        "memory.usage_in_bytes", "total_inactive_file ", "total_active_file "});
    }
  }
  return groups;
}

void take_limit(const GroupFiles& files, const std::string& folder, SystemMemory& memory) {
  const auto limit = parse_number(read_small_file(folder + files.limit).value_or(""));
  if (!limit || *limit >= memory.total_bytes) return;  // "max", or a number that never binds
  const uint64_t used = parse_number(read_small_file(folder + files.used).value_or("")).value_or(0);
  const std::string stat = read_small_file(folder + "memory.stat").value_or("");
  const uint64_t cache = find_field(stat, files.inactive_file).value_or(0) +
                         find_field(stat, files.active_file).value_or(0);
  const uint64_t kept = used - std::min(used, cache);
  const uint64_t available = *limit - std::min(*limit, kept);
  memory.group_limit_bytes = std::min(memory.group_limit_bytes.value_or(kNoLimit), *limit);
  memory.group_available_bytes =
      std::min(memory.group_available_bytes.value_or(kNoLimit), available);
}

// In a container the path may be seen from outside and not exist here: missing folders hold no
// limit, and the walk still ends at the mount, which is then this group itself.
void take_limits_up_to_root(const GroupFiles& files, SystemMemory& memory) {
  std::string path = files.path;
  while (!path.empty() && path != "/") {
    take_limit(files, files.mount + path + "/", memory);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  take_limit(files, files.mount + "/", memory);
}

Result<int64_t> count_entries(const std::string& folder) {
  std::error_code error;
  int64_t count = 0;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
  if (error) return io_error("list " + folder, error.value());
  return count;
}

}  // namespace

uint64_t SystemMemory::usable_total_bytes() const {
  return std::min(total_bytes, group_limit_bytes.value_or(kNoLimit));
}

uint64_t SystemMemory::usable_now_bytes() const {
  return std::min(available_bytes, group_available_bytes.value_or(kNoLimit));
}

Result<SystemMemory> read_system_memory(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  const auto text = read_small_file(path);
  if (!text) return io_error("open " + path, errno);
  SystemMemory memory;
  MOTLEY_ASSIGN_OR_RETURN(memory.total_bytes, kibibyte_field(path, *text, "MemTotal:"));
  MOTLEY_ASSIGN_OR_RETURN(memory.available_bytes, kibibyte_field(path, *text, "MemAvailable:"));
  for (const GroupFiles& files : find_groups(root)) take_limits_up_to_root(files, memory);
  return memory;
}

Result<ProcessMemory> read_process_memory(const std::string& root) {
  const std::string path = root + "/proc/self/status";
  const auto text = read_small_file(path);
  if (!text) return io_error("open " + path, errno);
  ProcessMemory memory;
  MOTLEY_ASSIGN_OR_RETURN(memory.resident_bytes, kibibyte_field(path, *text, "VmRSS:"));
  MOTLEY_ASSIGN_OR_RETURN(memory.peak_resident_bytes, kibibyte_field(path, *text, "VmHWM:"));
  return memory;
}

Result<ProcessHandles> read_process_handles() {
  ProcessHandles handles;
  MOTLEY_ASSIGN_OR_RETURN(handles.descriptors, count_entries("/proc/self/fd"));
  handles.descriptors -= 1;  // the one that lists them
  MOTLEY_ASSIGN_OR_RETURN(handles.threads, count_entries("/proc/self/task"));
  return handles;
}

}  // namespace motley
