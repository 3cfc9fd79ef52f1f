#include "experts/pack/pack_space.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <vector>

namespace motley {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kStatBlockBytes = 512;  // of st_blocks, on every file system

std::string size_text(int64_t bytes) {
  return bytes < 10'000'000 ? fmt::format("{} bytes", bytes)
                            : fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9);
}

// The directory itself, or the one that it will be made in.
fs::path existing(const std::string& directory) {
  std::error_code error;
  fs::path at = fs::absolute(directory, error);
  while (at.has_parent_path() && at != at.parent_path() && !fs::exists(at, error)) {
    at = at.parent_path();
  }
  return at;
}

std::string arithmetic(int64_t needed, int64_t free) {
  return fmt::format("{} more are needed and {} are free: {} are missing", size_text(needed),
                     size_text(free), size_text(std::max<int64_t>(needed - free, 0)));
}

}  // namespace

Result<PackSpace> pack_space(const std::string& directory, const PackManifest& manifest) {
  const fs::path place = existing(directory);
  struct stat facts{};
  struct statvfs system{};
  if (stat(place.c_str(), &facts) != 0 || statvfs(place.c_str(), &system) != 0) {
    return io_error(place.string(), errno);
  }
  PackSpace space{.needed_bytes = manifest.bytes() + manifest.records() * kPackEntryBytes,
                  .free_bytes = static_cast<int64_t>(system.f_bavail * system.f_frsize),
                  .device = facts.st_dev};
  for (size_t i = 0; i < manifest.layers.size(); ++i) {
    const std::string name =
        fmt::format("{}/{}", directory, layer_file_name(manifest.layers[i].layer));
    struct stat file{};
    if (stat(name.c_str(), &file) != 0) continue;
    space.needed_bytes -= std::min(int64_t{file.st_blocks} * kStatBlockBytes,
                                   manifest.records_of(i) * manifest.layers[i].record_bytes());
  }
  return space;
}

Status check_pack_space(std::span<const std::string> directories,
                        std::span<const PackManifest> manifests) {
  struct Drive {
    PackSpace space;
    std::string names;
  };
  std::map<uint64_t, Drive> drives;
  for (size_t i = 0; i < directories.size(); ++i) {
    MOTLEY_ASSIGN_OR_RETURN(const PackSpace space, pack_space(directories[i], manifests[i]));
    Drive& drive = drives[space.device];
    drive.space.needed_bytes += space.needed_bytes;
    drive.space.free_bytes = space.free_bytes;
    drive.names += (drive.names.empty() ? "" : " and ") + directories[i];
  }
  for (const auto& [device, drive] : drives) {
    if (drive.space.needed_bytes <= drive.space.free_bytes) continue;
    return resource_exhausted(
        fmt::format("{}: the disk is too small: {}", drive.names,
                    arithmetic(drive.space.needed_bytes, drive.space.free_bytes)));
  }
  return Status::ok();
}

Status disk_full(const std::string& directory, const PackManifest& manifest) {
  const Result<PackSpace> space = pack_space(directory, manifest);
  if (!space.is_ok()) return space.status();
  return resource_exhausted(
      fmt::format("{}: the disk is full: {}; make room and run the same command again, what is "
                  "written is kept",
                  directory, arithmetic(space->needed_bytes, space->free_bytes)));
}

}  // namespace motley
