// Reads through io_uring. One ring serves all drives: it has room for every read in flight.
#include <fmt/format.h>
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "io/stream/read_backend.h"

namespace motley {
namespace {

constexpr size_t kMaxRegisteredBytes = size_t{1} << 30;  // of one buffer, by the kernel
constexpr size_t kMaxRegisteredBuffers = 1024;           // of the kernels before 5.13

std::string why_refused(int error_number) {
  if (error_number == ENOSYS) return "io_uring: this kernel has none";
  if (error_number == ENOMEM) return "io_uring: no locked memory left for a ring (ulimit -l)";
  if (error_number == EPERM || error_number == EACCES) {
    std::ifstream file("/proc/sys/kernel/io_uring_disabled");
    int disabled = 0;
    if (file >> disabled && disabled != 0) {
      return fmt::format("io_uring: forbidden by sysctl kernel.io_uring_disabled = {}", disabled);
    }
    return "io_uring: forbidden, by a seccomp filter (containers do that) or the administrator";
  }
  return fmt::format("io_uring: {}", std::strerror(error_number));
}

bool is_passing(int error_number) {
  return error_number == EINTR || error_number == EAGAIN || error_number == EBUSY ||
         error_number == ENOMEM;
}

class UringBackend final : public ReadBackend {
 public:
  explicit UringBackend(std::span<const int> descriptors)
      : descriptors_(descriptors.begin(), descriptors.end()) {}
  ~UringBackend() override {
    if (!is_open_) return;
    std::vector<RawCompletion> last;
    while (in_flight_ > 0) wait(&last, in_flight_);
    io_uring_queue_exit(&ring_);
  }
  UringBackend(const UringBackend&) = delete;
  UringBackend& operator=(const UringBackend&) = delete;

  Status open(int capacity) {
    const int made = io_uring_queue_init(static_cast<unsigned>(capacity), &ring_, 0);
    if (made < 0) return unsupported(why_refused(-made));
    is_open_ = true;
    capacity_ = capacity;
    MOTLEY_RETURN_IF_ERROR(check_reads_exist());
    MOTLEY_RETURN_IF_ERROR(check_round_trip());
    files_registered_ = !descriptors_.empty() &&
                        io_uring_register_files(&ring_, descriptors_.data(),
                                                static_cast<unsigned>(descriptors_.size())) == 0;
    return Status::ok();
  }

  std::string_view name() const override { return "io_uring"; }

  Status register_buffers(std::span<const std::span<std::byte>> buffers) override {
    MOTLEY_CHECK(in_flight_ == 0 && pieces_.empty(), "buffers are registered once, before reads");
    std::vector<iovec> pieces;
    for (const auto buffer : buffers) {
      for (size_t at = 0; at < buffer.size(); at += kMaxRegisteredBytes) {
        pieces.push_back({buffer.data() + at, std::min(kMaxRegisteredBytes, buffer.size() - at)});
      }
    }
    if (pieces.size() > kMaxRegisteredBuffers) {
      return resource_exhausted(fmt::format("io_uring: {} buffers to register, at most {}",
                                            pieces.size(), kMaxRegisteredBuffers));
    }
    std::sort(pieces.begin(), pieces.end(),
              [](const iovec& a, const iovec& b) { return a.iov_base < b.iov_base; });
    const int registered =
        io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
    if (registered == -ENOMEM) {
      return resource_exhausted("io_uring: too little locked memory for the buffers (ulimit -l)");
    }
    if (registered < 0) return io_error("io_uring: cannot register buffers", -registered);
    pieces_ = std::move(pieces);
    return Status::ok();
  }

  void submit(const RawRead& read) override {
    MOTLEY_CHECK(read.file >= 0 && read.file < static_cast<int>(descriptors_.size()),
                 "a read of an unknown file");
    MOTLEY_CHECK(in_flight_ < capacity_, "more reads in flight than the ring has room for");
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      flush();
      entry = io_uring_get_sqe(&ring_);
      MOTLEY_CHECK(entry != nullptr, "the ring is full");
    }
    const int file = files_registered_ ? read.file : descriptors_[static_cast<size_t>(read.file)];
    const auto bytes = static_cast<unsigned>(read.into.size());
    const auto offset = static_cast<uint64_t>(read.offset);
    const int buffer = registered_buffer(read.into);
    if (buffer >= 0) {
      io_uring_prep_read_fixed(entry, file, read.into.data(), bytes, offset, buffer);
    } else {
      io_uring_prep_read(entry, file, read.into.data(), bytes, offset);
    }
    if (files_registered_) entry->flags |= IOSQE_FIXED_FILE;
    entry->user_data = read.id;
    ++in_flight_;
  }

  void flush() override {
    while (io_uring_sq_ready(&ring_) > 0) pass_on(io_uring_submit(&ring_));
  }

  void wait(std::vector<RawCompletion>* completions, int min_count) override {
    flush();
    int wanted = std::clamp(min_count, 0, in_flight_);
    while (true) {
      wanted -= collect(completions);
      if (wanted <= 0) return;
      pass_on(io_uring_submit_and_wait(&ring_, static_cast<unsigned>(wanted)));
    }
  }

 private:
  Status check_reads_exist() {
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return unsupported("io_uring: this kernel's is too old");
    const bool exist = io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
    io_uring_free_probe(probe);
    return exist ? Status::ok() : unsupported("io_uring: this kernel's has no plain reads");
  }

  // A filter may allow the ring to be made and forbid its use.
  Status check_round_trip() {
    io_uring_prep_nop(io_uring_get_sqe(&ring_));
    const int submitted = io_uring_submit(&ring_);
    if (submitted < 0) return unsupported(why_refused(-submitted));
    io_uring_cqe* entry = nullptr;
    const int arrived = io_uring_wait_cqe(&ring_, &entry);
    if (arrived < 0) return unsupported(why_refused(-arrived));
    io_uring_cqe_seen(&ring_, entry);
    return Status::ok();
  }

  // The kernel may be out of memory for a moment; any other refusal after the round trip is a bug.
  static void pass_on(int result) {
    if (result >= 0) return;
    MOTLEY_CHECK(is_passing(-result), std::strerror(-result));
    if (result != -EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  int collect(std::vector<RawCompletion>* completions) {
    unsigned head = 0;
    unsigned count = 0;
    io_uring_cqe* entry = nullptr;
    io_uring_for_each_cqe(&ring_, head, entry) {
      completions->push_back({entry->user_data, entry->res});
      ++count;
    }
    io_uring_cq_advance(&ring_, count);
    in_flight_ -= static_cast<int>(count);
    return static_cast<int>(count);
  }

  // The index of the registered buffer that holds all of `into`, -1 when none does.
  int registered_buffer(std::span<std::byte> into) const {
    const auto after = std::upper_bound(
        pieces_.begin(), pieces_.end(), into.data(),
        [](const std::byte* address, const iovec& piece) { return address < piece.iov_base; });
    if (after == pieces_.begin()) return -1;
    const iovec& piece = *std::prev(after);
    const auto* end = static_cast<const std::byte*>(piece.iov_base) + piece.iov_len;
    if (into.data() + into.size() > end) return -1;
    return static_cast<int>(std::distance(pieces_.begin(), after)) - 1;
  }

  const std::vector<int> descriptors_;
  io_uring ring_{};
  bool is_open_ = false;
  bool files_registered_ = false;
  int capacity_ = 0;
  int in_flight_ = 0;          // submitted and not yet collected
  std::vector<iovec> pieces_;  // registered, by address
};

}  // namespace

Result<std::unique_ptr<ReadBackend>> open_uring_backend(std::span<const int> descriptors,
                                                        int capacity) {
  MOTLEY_CHECK(capacity >= 1 && capacity <= 4096, "1 to 4096 reads in flight");
  auto backend = std::make_unique<UringBackend>(descriptors);
  MOTLEY_RETURN_IF_ERROR(backend->open(capacity));
  return std::unique_ptr<ReadBackend>(std::move(backend));
}

}  // namespace motley
