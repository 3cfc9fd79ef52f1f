#include "experts/read_guard.h"

#include <fmt/format.h>

#include "base/hash.h"

namespace motley {
namespace {

bool has_checksum(const ReadGuard& guard, const Clock& clock, FaultPoints& faults,
                  GuardStats* stats) {
  if (!guard.checksum) return true;
  const int64_t start_ns = clock.now_ns();
  const bool same =
      hash_bytes(guard.range.into) == *guard.checksum && faults.visit("experts.checksum").is_ok();
  stats->check_s += seconds_since(clock, start_ns);
  stats->checked_bytes += static_cast<int64_t>(guard.range.into.size());
  stats->mismatches += same ? 0 : 1;
  return same;
}

Status mismatch(const ReadGuard& guard, const DirectFile& file) {
  return io_error(
      fmt::format("{}: {} bytes from offset {} have another checksum than when they were packed; "
                  "\"motley pack --verify\" finds what is damaged, \"motley pack\" writes it again",
                  file.name(), guard.range.into.size(), guard.range.offset));
}

}  // namespace

GuardStats& GuardStats::operator+=(const GuardStats& other) {
  checked_bytes += other.checked_bytes;
  check_s += other.check_s;
  mismatches += other.mismatches;
  rescued += other.rescued;
  return *this;
}

GuardStats GuardStats::operator-(const GuardStats& earlier) const {
  return {.checked_bytes = checked_bytes - earlier.checked_bytes,
          .check_s = check_s - earlier.check_s,
          .mismatches = mismatches - earlier.mismatches,
          .rescued = rescued - earlier.rescued};
}

Status inspect_read(const ReadGuard& guard, std::span<const DirectFile> files, Status arrived,
                    const Clock& clock, FaultPoints& faults, GuardStats* stats) {
  if (arrived.code() == StatusCode::kCancelled) return arrived;
  const DirectFile& first = files[static_cast<size_t>(guard.range.file)];
  if (arrived.is_ok()) {
    if (has_checksum(guard, clock, faults, stats)) return arrived;
    arrived = mismatch(guard, first);
  } else if (guard.other_file < 0) {
    return arrived;  // its scheduler has tried twice
  }
  const DirectFile& second =
      guard.other_file >= 0 ? files[static_cast<size_t>(guard.other_file)] : first;
  const auto wanted = static_cast<int64_t>(guard.range.into.size());
  if (second.read(guard.range.offset, guard.range.into) != wanted) return arrived;
  if (!has_checksum(guard, clock, faults, stats)) return arrived;
  ++stats->rescued;
  return Status::ok();
}

}  // namespace motley
