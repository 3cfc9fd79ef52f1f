// How fast a drive gives records, and how many reads it wants in flight.
//
// Purpose: the rate that a streamed run is compared with, and the depth of its read scheduler.
// Random aligned records of existing files are read for a fraction of a second at each depth,
// through the same scheduler as a run's, then records in order. Nothing is written to the drive.
// Results are kept in a small JSON file, because a probe takes about two seconds and disturbs
// others. That file is input like any other: one that is damaged or strange is not used.
// Units: bytes, seconds, seconds since 1970. Thread rule: values; one probe at a time per drive, or
// they measure each other. Errors: kInvalidArgument when no file holds a record, kIo when a read
// fails twice. Fault points: those of read_scheduler.h and of file.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "io/file.h"
#include "io/stream/direct_file.h"
#include "io/stream/read_backend.h"

namespace motley {

struct DriveRate {
  int depth = 0;
  double bytes_per_second = 0;
  friend bool operator==(const DriveRate&, const DriveRate&) = default;
};

struct DriveProbe {
  std::string drive;               // drive_identity()
  std::string backend;             // ReadBackend::name()
  int64_t record_class_bytes = 0;  // record_class()
  int parts = 1;                   // that a record is read in, each from another place
  bool is_direct = false;
  std::string reason;             // why not direct, or why not by io_uring; may be empty
  std::vector<DriveRate> random;  // ascending depths, not empty
  double sequential_bytes_per_second = 0;
  int64_t taken_unix_s = 0;

  double best_bytes_per_second() const;
  // The smallest depth that gives the best rate but for 3 %.
  int best_depth() const;
  friend bool operator==(const DriveProbe&, const DriveProbe&) = default;
};

struct DriveProbeOptions {
  int64_t record_bytes = int64_t{1} << 21;
  // The sizes of a record's parts, when they lie in different places (experts of a checkpoint whose
  // matrices are stacked one by one); empty: it is one piece. record_bytes is their sum.
  std::vector<int64_t> part_bytes;
  std::vector<int> depths = {1, 2, 4, 8, 16, 32};  // ascending
  double seconds_per_depth = 0.3;
  int64_t max_buffer_bytes = int64_t{256} << 20;  // greater depths of large records are left out
  ReadBackendKind backend = ReadBackendKind::kAuto;
  CacheUse cache_use = CacheUse::kBypass;
  uint64_t seed = 0;  // of the offsets; 0: another one each time
};

// `files` are the places to read; those on other drives than the first one's are left out.
Result<DriveProbe> probe_drive(const Clock& clock, FaultPoints& faults,
                               std::span<const File* const> files,
                               const DriveProbeOptions& options);

// Device number and file system of a file or folder, the same after a restart.
Result<std::string> drive_identity(const File& file);
Result<std::string> drive_identity(const std::string& path);
// Records of similar size share a result: the next power of two.
int64_t record_class(int64_t record_bytes);

// The cache file. Limits: 64 results, 32 depths each, 256 KiB.
Result<std::vector<DriveProbe>> parse_drive_probes(std::string_view text, std::string name);
std::string format_drive_probes(std::span<const DriveProbe> probes);

// $XDG_CACHE_HOME/motley/drives.json, else ~/.cache/motley/drives.json, else empty.
std::string default_drive_cache_path();

// Without a probe: the newest result of the drive that holds `path` (a file or folder), for records
// of about `record_bytes` if there is one. nullopt when nothing is known or the cache is unusable.
std::optional<DriveProbe> find_drive_probe(FaultPoints& faults, const std::string& path,
                                           int64_t record_bytes, const std::string& cache_path);

struct CachedDriveProbe {
  DriveProbe probe;
  bool was_cached = false;
  std::string note;  // why the cache was not read or could not be written; may be empty
};
// The result in the file at `cache_path` when it is of this drive, record class, backend and kind
// of read and at most `max_age_s` old; else probes and adds the result. An empty path: no cache.
Result<CachedDriveProbe> probe_drive_cached(const Clock& clock, FaultPoints& faults,
                                            std::span<const File* const> files,
                                            const DriveProbeOptions& options,
                                            const std::string& cache_path,
                                            int64_t max_age_s = int64_t{30} * 24 * 3600);

}  // namespace motley
