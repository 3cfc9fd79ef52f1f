// Which read goes to which drive next.
//
// Purpose: everything that is streamed while a model runs. A request is a tag with one or several
// ranges; it completes once, when all have arrived. Each drive has at most `depth` reads in flight;
// the next one to start is the oldest of the most urgent class that waits for that drive. Long
// ranges are cut, so that an urgent read never waits behind a huge one.
// Errors: a read that fails or comes up short is read again once, by pread, in the caller's thread;
// if that fails too, the request fails with kIo naming file, offset and reason, and all else goes
// on. Nothing may be computed from the buffers of a request that did not succeed.
// Ownership: files and backend are the scheduler's. A buffer belongs to it from submit() until the
// tag's completion was returned, also after cancel(). Destruction waits for the reads in flight.
// Thread rule: one caller at a time. Reads are started by submit(), poll() and wait() only.
// Units: bytes, seconds. Fault points: io.stream.read (a read that arrives fails with EIO),
// io.stream.retry (and its second try too).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "io/stream/direct_file.h"
#include "io/stream/read_backend.h"

namespace motley {

// Most urgent first.
enum class ReadPriority : uint8_t { kDemandGateUp, kDemandDown, kLookAhead, kWarmUp, kSweep };
inline constexpr int kReadPriorities = 5;
std::string_view read_priority_name(ReadPriority priority);

// Offset, address and length are aligned as the file says (DirectFile::aligned_range). Bytes past
// the end of the file are left as they are.
struct ReadRange {
  int file = 0;  // index into the scheduler's files
  int64_t offset = 0;
  std::span<std::byte> into;
};

struct ReadCompletion {
  uint64_t tag = 0;
  Status status;       // kCancelled after cancel()
  double seconds = 0;  // from submit() until the last range was seen to have arrived
};

struct ReadStats {
  struct Class {
    int64_t reads = 0;  // that arrived, also those of cancelled requests
    int64_t bytes = 0;
    int64_t retries = 0;
    int64_t failures = 0;   // requests
    int64_t cancelled = 0;  // requests
  };
  struct Drive {
    dev_t device = 0;
    int64_t bytes = 0;
    // With at least one read in flight; ends when an arrival is noticed, so poll often.
    double busy_seconds = 0;
  };
  std::array<Class, kReadPriorities> classes;
  std::vector<Drive> drives;

  Class& of(ReadPriority priority) { return classes[static_cast<size_t>(priority)]; }
  const Class& of(ReadPriority priority) const { return classes[static_cast<size_t>(priority)]; }
  int64_t total_bytes() const;
};

struct ReadSchedulerOptions {
  int depth = 8;             // reads in flight per drive
  int background_depth = 0;  // of which look-ahead and below; 0: no limit of its own
  int64_t max_read_bytes = int64_t{4} << 20;  // a multiple of 4096
  ReadBackendKind backend = ReadBackendKind::kAuto;
  int threads = 8;  // of the pread backend
};

class ReadScheduler {
 public:
  // With a backend of its own; errors as open_read_backend().
  static Result<std::unique_ptr<ReadScheduler>> open(const Clock& clock, FaultPoints& faults,
                                                     std::vector<DirectFile> files,
                                                     const ReadSchedulerOptions& options);
  // `opened` has the descriptors of `files` in their order and room for depth reads per drive.
  ReadScheduler(const Clock& clock, FaultPoints& faults, std::vector<DirectFile> files,
                OpenedReadBackend opened, const ReadSchedulerOptions& options);

  const std::vector<DirectFile>& files() const { return files_; }
  std::string_view backend_name() const { return opened_.backend->name(); }
  const std::string& backend_reason() const { return opened_.reason; }
  // As ReadBackend's; call before the first submit().
  Status register_buffers(std::span<const std::span<std::byte>> buffers);

  // The tag must not be in use. A request without ranges completes at the next poll(). Starts with
  // the next start(), poll() or wait(): several requests cost one system call.
  void submit(uint64_t tag, ReadPriority priority, std::span<const ReadRange> ranges);
  void start();
  // Drops what has not started; false when the tag is not in use. The tag's completion still comes.
  bool cancel(uint64_t tag);
  // What has not started joins the end of a more urgent class: a look-ahead that is needed now.
  // False when the tag is not in use or already as urgent.
  bool raise(uint64_t tag, ReadPriority priority);

  std::vector<ReadCompletion> poll();
  // Blocks for at least one completion; returns none when nothing was submitted.
  std::vector<ReadCompletion> wait();

  bool is_idle() const { return request_of_tag_.empty() && ready_.empty(); }
  int drive_of(int file) const { return drive_of_file_[static_cast<size_t>(file)]; }
  // Asked for and not yet read, of the file's drive.
  int64_t outstanding_bytes(int file) const {
    return drives_[static_cast<size_t>(drive_of(file))].outstanding_bytes;
  }
  int drive_count() const { return static_cast<int>(drives_.size()); }
  ReadStats stats() const;

 private:
  struct Request {
    uint64_t tag = 0;
    ReadPriority priority = ReadPriority::kWarmUp;
    int waiting = 0;  // pieces not started
    int flying = 0;
    int64_t start_ns = 0;
    Status status;
  };
  struct Piece {
    int request = 0;
    ReadRange range;
    bool is_background = false;  // as it was when it started
  };
  struct Drive {
    std::array<std::deque<Piece>, kReadPriorities> queues;
    int flying = 0;
    int flying_background = 0;
    int64_t busy_since_ns = 0;
    int64_t busy_ns = 0;
    int64_t bytes = 0;
    int64_t outstanding_bytes = 0;
    dev_t device = 0;
  };

  void enqueue(int request, const ReadRange& range);
  bool start_one(Drive& drive);
  void take_arrivals(int min_count);
  void land(const RawCompletion& arrival);
  Status finish_read(const Piece& piece, int64_t result);
  void drop_waiting(int request);
  void settle(int request);

  const Clock& clock_;
  FaultPoints& faults_;
  const ReadSchedulerOptions options_;
  std::vector<DirectFile> files_;
  std::vector<int> drive_of_file_;
  std::vector<Drive> drives_;
  std::vector<Request> requests_;  // slots, reused
  std::vector<int> free_requests_;
  std::vector<Piece> pieces_;  // in flight; the index is the read's id
  std::vector<int> free_pieces_;
  std::unordered_map<uint64_t, int> request_of_tag_;
  std::vector<ReadCompletion> ready_;
  std::vector<RawCompletion> arrivals_;  // scratch
  ReadStats stats_;                      // but for the drives
  OpenedReadBackend opened_;             // last: its end waits for reads from the files above
};

}  // namespace motley
