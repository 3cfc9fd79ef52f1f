// Reads in flight: handed to the kernel or to threads, collected as they arrive, in any order.
//
// Two implementations with the same behaviour: io_uring (one system call for many reads, no
// threads of ours) and a pool of threads that call pread, for machines where io_uring is absent or
// forbidden. A backend does one read as asked and reports what happened; retries, priorities and
// limits are the scheduler's (read_scheduler.h).
// Units: bytes. Ownership: descriptors and buffers belong to the caller; a buffer belongs to the
// backend from submit() until its completion was collected. Destruction waits for every read.
// Thread rule: one caller at a time. Errors: a failed read is a negative errno in its completion.
// Source: io_uring(7).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace motley {

struct RawRead {
  int file = 0;  // index into the descriptors that the backend was made with
  int64_t offset = 0;
  std::span<std::byte> into;
  uint64_t id = 0;  // returned in the completion
};

struct RawCompletion {
  uint64_t id = 0;
  int64_t result = 0;  // bytes read, may be fewer than asked for; negative: an errno
};

class ReadBackend {
 public:
  virtual ~ReadBackend() = default;

  virtual std::string_view name() const = 0;  // "io_uring" or "pread"
  // Buffers that reads will go to, once, before the first read; makes such reads cheaper. Reads
  // into other memory stay possible. On an error reads are done as without it.
  virtual Status register_buffers(std::span<const std::span<std::byte>> buffers) = 0;

  // At most `capacity` reads may be in flight. A read may wait for flush() or wait() to start.
  virtual void submit(const RawRead& read) = 0;
  virtual void flush() = 0;
  // Appends what has arrived; blocks until that is `min_count` or nothing is in flight.
  virtual void wait(std::vector<RawCompletion>* completions, int min_count) = 0;
};

enum class ReadBackendKind { kAuto, kUring, kPread };

struct ReadBackendOptions {
  ReadBackendKind kind = ReadBackendKind::kAuto;
  int capacity = 32;  // reads in flight, 1 to 4096
  int threads = 8;    // of the pread backend, 1 to 256
};

struct OpenedReadBackend {
  std::unique_ptr<ReadBackend> backend;
  std::string reason;  // why kAuto took pread, else empty
};

// kUnsupported with the reason when io_uring was asked for and cannot be had; kResourceExhausted
// when threads cannot be started.
Result<OpenedReadBackend> open_read_backend(std::span<const int> descriptors,
                                            const ReadBackendOptions& options);

Result<std::unique_ptr<ReadBackend>> open_uring_backend(std::span<const int> descriptors,
                                                        int capacity);
Result<std::unique_ptr<ReadBackend>> open_pread_backend(std::span<const int> descriptors,
                                                        int threads);

}  // namespace motley
