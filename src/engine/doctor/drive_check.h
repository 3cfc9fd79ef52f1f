// What the drive that holds a path gives, and what that means for streaming experts from it.
//
// Records of the largest files at the path are read. Where there are too few, a file of 128 MiB is
// written without a name and read; it is gone afterwards. Thread rule: one probe at a time per
// drive. Errors: kNotFound for a path that does not exist; everything else is a finding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "engine/doctor/finding.h"
#include "io/stream/drive_probe.h"

namespace motley {

struct DriveFacts {
  std::string path;         // as asked
  std::string device;       // "vda", or the source of a network or memory file system
  std::string file_system;  // "ext4"
  bool is_rotating = false;
  int64_t block_bytes = 0;  // of direct reads; 0: not known
  int64_t memory_alignment = 0;
  bool is_sample = false;  // a file written for it was measured
  std::optional<DriveProbe> probe;
  std::string reason;  // why there is no probe
};
Finding judge_drive(const DriveFacts& facts);

struct DriveCheckOptions {
  std::string cache_path;  // of the drive cache, which gets the result; empty: none
  double seconds_per_depth = 0.15;
};
// `path` is a file or a folder.
Result<DriveFacts> examine_drive(const Clock& clock, FaultPoints& faults, const std::string& path,
                                 const DriveCheckOptions& options);

// Device and type of file system as /proc/self/mountinfo (`text`) has them for a device number.
struct MountFacts {
  std::string source;
  std::string type;
};
std::optional<MountFacts> find_mount(const std::string& text, unsigned major, unsigned minor);

}  // namespace motley
