// What is done about a read of a packed record that failed or brought the wrong bytes.
//
// A guard knows the bytes by their checksum and may know a second place that holds the same. A read
// that failed is done again there; one whose bytes have another checksum is done again there, or
// where it was if there is no such place. What is wrong twice fails with one line that names file
// and offset. Inspection takes the time of one pass over the bytes, and of the second read.
// Ownership: none. Thread rule: free functions; the bytes belong to the caller meanwhile.
// Fault point: experts.checksum (the bytes as they are look wrong).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "io/stream/read_scheduler.h"

namespace motley {

struct ReadGuard {
  ReadRange range;                   // the only one of the request, where it was read
  std::optional<uint64_t> checksum;  // hash_bytes() of range.into; not set: not checked
  int other_file = -1;               // has the same bytes at the same offset; -1: none does
};

struct GuardStats {
  int64_t checked_bytes = 0;
  double check_s = 0;
  int64_t mismatches = 0;
  int64_t rescued = 0;  // reads that were right the second time

  GuardStats& operator+=(const GuardStats& other);
  GuardStats operator-(const GuardStats& earlier) const;
};

// The status of the request, `arrived` being what its read came to. A cancelled one stays so.
Status inspect_read(const ReadGuard& guard, std::span<const DirectFile> files, Status arrived,
                    const Clock& clock, FaultPoints& faults, GuardStats* stats);

}  // namespace motley
