#include "engine/doctor/drive_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "io/stream/direct_file.h"
#include "spec/config_json.h"

namespace motley {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRecordBytes = int64_t{2} << 20;
constexpr int64_t kWrittenBytes = int64_t{128} << 20;
constexpr int64_t kEnoughBytes = 2 * kWrittenBytes;  // less would be read again and again
constexpr uint64_t kLeastFree = uint64_t{1} << 30;
constexpr int kMostEntries = 10000;
constexpr int kMostDepth = 4;
constexpr double kGoodRate = 1e9;

// The largest files in a folder and those below it, or the file itself.
std::vector<fs::path> candidates(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::pair<uintmax_t, fs::path>> found;
  int seen = 0;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(path, options, error), end;
       !error && entry != end && ++seen <= kMostEntries; entry.increment(error)) {
    std::error_code ignored;
    if (entry.depth() >= kMostDepth) entry.disable_recursion_pending();
    if (entry->is_symlink(ignored) || !entry->is_regular_file(ignored)) continue;
    found.emplace_back(entry->file_size(ignored), entry->path());
  }
  std::sort(found.rbegin(), found.rend());
  constexpr size_t kMostFiles = 16;
  if (found.size() > kMostFiles) found.resize(kMostFiles);
  std::vector<fs::path> paths;
  paths.reserve(found.size());
  for (auto& [size, file] : found) paths.push_back(std::move(file));
  return paths;
}

// A file without a name, for as long as it is open.
Result<File> write_sample(FaultPoints& faults, const fs::path& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available < kLeastFree) {
    return resource_exhausted(
        fmt::format("{} has no large files and less than 1 GiB free", folder.string()));
  }
  Descriptor descriptor(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!descriptor.is_open()) return io_error("cannot write a sample in " + folder.string(), errno);
  std::vector<char> block(size_t{4} << 20);
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>(i * 2654435761U >> 13);
  for (int64_t done = 0; done < kWrittenBytes;) {
    const ssize_t wrote = ::write(descriptor.get(), block.data(), block.size());
    if (wrote <= 0) return io_error("cannot write a sample in " + folder.string(), errno);
    done += wrote;
  }
  if (fsync(descriptor.get()) != 0) return io_error(folder.string(), errno);
  return File::adopt(faults, std::move(descriptor), folder.string());
}

void name_device(DriveFacts* facts, dev_t device) {
  std::ifstream file("/proc/self/mountinfo");
  std::stringstream text;
  text << file.rdbuf();
  if (const auto mount = find_mount(text.str(), major(device), minor(device))) {
    facts->device = mount->source;
    facts->file_system = mount->type;
  }
  const std::string folder = fmt::format("/sys/dev/block/{}:{}", major(device), minor(device));
  for (const char* place : {"/queue/rotational", "/../queue/rotational"}) {
    int rotational = 0;
    if (std::ifstream(folder + place) >> rotational) facts->is_rotating = rotational != 0;
  }
}

std::string depths_text(const DriveProbe& probe) {
  std::string text;
  for (const DriveRate& rate : probe.random) {
    text += fmt::format("{}{:.2f} at {}", text.empty() ? "" : ", ", rate.bytes_per_second * 1e-9,
                        rate.depth);
  }
  return text;
}

std::string details_of(const DriveFacts& facts) {
  std::string text = fmt::format(
      "\"path\": {}, \"device\": {}, \"file_system\": {}, \"rotating\": {}, \"block_bytes\": {}, "
      "\"memory_alignment\": {}, \"sample\": {}",
      json_quote(facts.path), json_quote(facts.device), json_quote(facts.file_system),
      facts.is_rotating, facts.block_bytes, facts.memory_alignment, facts.is_sample);
  if (!facts.probe.has_value()) return text + ", \"reason\": " + json_quote(facts.reason);
  const DriveProbe& probe = *facts.probe;
  text += fmt::format(
      ", \"direct\": {}, \"reads_by\": {}, \"sequential_bytes_per_s\": {:.4e}, \"random\": [",
      probe.is_direct, json_quote(probe.backend), probe.sequential_bytes_per_second);
  for (const DriveRate& rate : probe.random) {
    text +=
        fmt::format("{}{{\"depth\": {}, \"bytes_per_s\": {:.4e}}}",
                    &rate == probe.random.data() ? "" : ", ", rate.depth, rate.bytes_per_second);
  }
  return text + "]";
}

}  // namespace

Finding judge_drive(const DriveFacts& facts) {
  Finding finding{.topic = "drive"};
  finding.details = details_of(facts);
  finding.fact = fmt::format("{}: {} on {}", facts.path,
                             facts.file_system.empty() ? "unknown" : facts.file_system,
                             facts.device.empty() ? "an unknown device" : facts.device);
  if (!facts.probe.has_value()) {
    finding.health = Health::kSlow;
    finding.meaning = "its speed is not known: " + facts.reason;
    finding.remedy = "name a folder that holds a model";
    return finding;
  }
  const DriveProbe& probe = *facts.probe;
  finding.fact +=
      fmt::format("; {}; GB/s by records of 2 MiB in flight: {}; in order {:.2f}",
                  probe.is_direct ? fmt::format("O_DIRECT in blocks of {}, memory aligned to {}",
                                                facts.block_bytes, facts.memory_alignment)
                                  : "no O_DIRECT: " + probe.reason,
                  depths_text(probe), probe.sequential_bytes_per_second * 1e-9);
  const double best = probe.best_bytes_per_second();
  finding.meaning =
      fmt::format("a model that reads 1 GB a token decodes at {:.1f} tok/s at most", best * 1e-9);
  if (facts.file_system == "tmpfs") {
    finding.meaning = "this is memory: a model streamed from here takes it twice";
  } else if (facts.is_sample) {
    finding.meaning += "; measured on a file written just now, which the drive may still cache";
  }
  // Virtual drives often claim to rotate, so the rate has the last word.
  if (facts.is_rotating && best < kGoodRate) {
    finding.health = Health::kSlow;
    finding.remedy = "a rotating disk: keep models larger than memory on an SSD";
  } else if (best < kGoodRate) {
    finding.health = Health::kSlow;
    finding.remedy = "keep models larger than memory on a faster drive, such as an NVMe SSD";
  } else if (!probe.is_direct) {
    finding.health = Health::kSlow;
    finding.remedy = "reads go through the page cache, a copy more; use ext4, xfs or btrfs";
  }
  return finding;
}

std::optional<MountFacts> find_mount(const std::string& text, unsigned major, unsigned minor) {
  // "36 35 98:0 /root /mount opts - type source superopts"; proc(5).
  const std::string wanted = fmt::format("{}:{}", major, minor);
  std::istringstream lines(text);
  std::optional<MountFacts> found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id;
    std::string parent;
    std::string device;
    words >> id >> parent >> device;
    const size_t dash = line.find(" - ");
    if (device != wanted || dash == std::string::npos) continue;
    MountFacts mount;
    std::istringstream rest(line.substr(dash + 3));
    rest >> mount.type >> mount.source;
    found = std::move(mount);
  }
  return found;
}

Result<DriveFacts> examine_drive(const Clock& clock, FaultPoints& faults, const std::string& path,
                                 const DriveCheckOptions& options) {
  DriveFacts facts{.path = path};
  struct stat about{};
  if (stat(path.c_str(), &about) != 0) return not_found(path + ": there is no such file or folder");
  name_device(&facts, about.st_dev);
  std::vector<File> files;
  int64_t bytes = 0;
  for (const fs::path& candidate : candidates(path)) {
    auto file = File::open(faults, candidate.string());
    if (!file.is_ok() || file->size() < kRecordBytes) continue;
    bytes += file->size();
    files.push_back(std::move(*file));
  }
  if (bytes < kEnoughBytes) {
    const fs::path folder = S_ISDIR(about.st_mode) ? fs::path(path) : fs::path(path).parent_path();
    auto sample = write_sample(faults, folder.empty() ? "." : folder);
    if (sample.is_ok()) {
      files.clear();
      files.push_back(std::move(*sample));
      facts.is_sample = true;
    } else if (files.empty()) {
      facts.reason = sample.status().message();
      return facts;
    }
  }
  std::vector<const File*> pointers;
  pointers.reserve(files.size());
  for (const File& file : files) pointers.push_back(&file);
  if (const auto direct = DirectFile::open(faults, files.front()); direct.is_ok()) {
    facts.block_bytes = direct->block_bytes();
    facts.memory_alignment = direct->memory_alignment();
  }
  const auto probed = probe_drive_cached(
      clock, faults, pointers,
      {.record_bytes = kRecordBytes, .seconds_per_depth = options.seconds_per_depth},
      facts.is_sample ? "" : options.cache_path, /*max_age_s=*/-1);
  if (probed.is_ok()) {
    facts.probe = probed->probe;
  } else {
    facts.reason = probed.status().message();
  }
  return facts;
}

}  // namespace motley
