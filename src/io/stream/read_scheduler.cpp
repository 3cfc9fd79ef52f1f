#include "io/stream/read_scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace motley {
namespace {

bool is_background(ReadPriority priority) {
  return priority >= ReadPriority::kLookAhead;
}

int64_t length_of(const ReadRange& range) {
  return static_cast<int64_t>(range.into.size());
}

void check_range(const DirectFile& file, const ReadRange& range) {
  const auto block = static_cast<uint64_t>(file.block_bytes());
  const auto address = reinterpret_cast<uintptr_t>(range.into.data());
  MOTLEY_CHECK(range.offset >= 0 && range.offset < file.size() && !range.into.empty(),
               "a read outside the file");
  MOTLEY_CHECK(static_cast<uint64_t>(range.offset) % block == 0 && range.into.size() % block == 0,
               "a read that is not in whole blocks");
  MOTLEY_CHECK(address % static_cast<uintptr_t>(file.memory_alignment()) == 0,
               "a read into memory that is not aligned");
  MOTLEY_CHECK(
      length_of(range) - file.present_bytes({range.offset, length_of(range)}) < file.block_bytes(),
      "a read that ends beyond the file's last block");
}

}  // namespace

std::string_view read_priority_name(ReadPriority priority) {
  constexpr std::array<std::string_view, kReadPriorities> kNames = {
      "demand gate+up", "demand down", "look-ahead", "warm-up", "sweep"};
  return kNames[static_cast<size_t>(priority)];
}

int64_t ReadStats::total_bytes() const {
  int64_t bytes = 0;
  for (const Class& one : classes) bytes += one.bytes;
  return bytes;
}

Result<std::unique_ptr<ReadScheduler>> ReadScheduler::open(const Clock& clock, FaultPoints& faults,
                                                           std::vector<DirectFile> files,
                                                           const ReadSchedulerOptions& options) {
  std::vector<int> descriptors;
  std::vector<dev_t> devices;
  for (const DirectFile& file : files) {
    descriptors.push_back(file.descriptor());
    devices.push_back(file.device());
  }
  std::sort(devices.begin(), devices.end());
  const auto drives = std::unique(devices.begin(), devices.end()) - devices.begin();
  const int capacity = options.depth * std::max(1, static_cast<int>(drives));
  MOTLEY_ASSIGN_OR_RETURN(OpenedReadBackend opened,
                          open_read_backend(descriptors, {.kind = options.backend,
                                                          .capacity = capacity,
                                                          .threads = options.threads}));
  return std::make_unique<ReadScheduler>(clock, faults, std::move(files), std::move(opened),
                                         options);
}

ReadScheduler::ReadScheduler(const Clock& clock, FaultPoints& faults, std::vector<DirectFile> files,
                             OpenedReadBackend opened, const ReadSchedulerOptions& options)
    : clock_(clock),
      faults_(faults),
      options_(options),
      files_(std::move(files)),
      opened_(std::move(opened)) {
  MOTLEY_CHECK(options.depth >= 1 && options.background_depth >= 0, "a depth below 1");
  MOTLEY_CHECK(options.max_read_bytes >= 4096 && options.max_read_bytes % 4096 == 0,
               "reads are cut in multiples of 4096 bytes");
  for (const DirectFile& file : files_) {
    const auto known = std::find_if(drives_.begin(), drives_.end(), [&](const Drive& drive) {
      return drive.device == file.device();
    });
    drive_of_file_.push_back(static_cast<int>(known - drives_.begin()));
    if (known == drives_.end()) drives_.emplace_back().device = file.device();
  }
}

Status ReadScheduler::register_buffers(std::span<const std::span<std::byte>> buffers) {
  return opened_.backend->register_buffers(buffers);
}

void ReadScheduler::submit(uint64_t tag, ReadPriority priority, std::span<const ReadRange> ranges) {
  if (free_requests_.empty()) {
    free_requests_.push_back(static_cast<int>(requests_.size()));
    requests_.emplace_back();
  }
  const int request = free_requests_.back();
  MOTLEY_CHECK(request_of_tag_.emplace(tag, request).second, "a tag that is in use");
  free_requests_.pop_back();
  requests_[static_cast<size_t>(request)] = {
      .tag = tag, .priority = priority, .start_ns = clock_.now_ns(), .status = Status::ok()};
  for (const ReadRange& range : ranges) enqueue(request, range);
  settle(request);
}

void ReadScheduler::enqueue(int request, const ReadRange& range) {
  MOTLEY_CHECK(range.file >= 0 && range.file < static_cast<int>(files_.size()),
               "a read of an unknown file");
  check_range(files_[static_cast<size_t>(range.file)], range);
  Request& owner = requests_[static_cast<size_t>(request)];
  Drive& drive = drives_[static_cast<size_t>(drive_of(range.file))];
  drive.outstanding_bytes += length_of(range);
  auto& queue = drive.queues[static_cast<size_t>(owner.priority)];
  const auto step = static_cast<size_t>(options_.max_read_bytes);
  for (size_t at = 0; at < range.into.size(); at += step) {
    const size_t bytes = std::min(step, range.into.size() - at);
    queue.push_back(
        {request,
         {range.file, range.offset + static_cast<int64_t>(at), range.into.subspan(at, bytes)}});
    ++owner.waiting;
  }
}

bool ReadScheduler::cancel(uint64_t tag) {
  const auto found = request_of_tag_.find(tag);
  if (found == request_of_tag_.end()) return false;
  const int request = found->second;
  Request& owner = requests_[static_cast<size_t>(request)];
  drop_waiting(request);
  if (owner.status.is_ok()) {
    owner.status = cancelled("the read was cancelled");
    ++stats_.of(owner.priority).cancelled;
  }
  settle(request);
  return true;
}

bool ReadScheduler::raise(uint64_t tag, ReadPriority priority) {
  const auto found = request_of_tag_.find(tag);
  if (found == request_of_tag_.end()) return false;
  const int request = found->second;
  Request& owner = requests_[static_cast<size_t>(request)];
  if (owner.priority <= priority) return false;
  for (Drive& drive : drives_) {
    auto& from = drive.queues[static_cast<size_t>(owner.priority)];
    auto& to = drive.queues[static_cast<size_t>(priority)];
    for (const Piece& piece : from) {
      if (piece.request == request) to.push_back(piece);
    }
    std::erase_if(from, [&](const Piece& piece) { return piece.request == request; });
  }
  owner.priority = priority;
  return true;
}

void ReadScheduler::drop_waiting(int request) {
  Request& owner = requests_[static_cast<size_t>(request)];
  if (owner.waiting == 0) return;
  for (Drive& drive : drives_) {
    std::erase_if(drive.queues[static_cast<size_t>(owner.priority)], [&](const Piece& piece) {
      if (piece.request != request) return false;
      drive.outstanding_bytes -= length_of(piece.range);
      return true;
    });
  }
  owner.waiting = 0;
}

std::vector<ReadCompletion> ReadScheduler::poll() {
  take_arrivals(0);
  start();
  return std::exchange(ready_, {});
}

std::vector<ReadCompletion> ReadScheduler::wait() {
  take_arrivals(0);
  start();
  while (ready_.empty() && !request_of_tag_.empty()) {
    take_arrivals(1);
    start();
  }
  return std::exchange(ready_, {});
}

void ReadScheduler::start() {
  bool any = false;
  for (Drive& drive : drives_) {
    while (drive.flying < options_.depth && start_one(drive)) any = true;
  }
  if (any) opened_.backend->flush();
}

bool ReadScheduler::start_one(Drive& drive) {
  size_t priority = 0;
  while (priority < drive.queues.size() && drive.queues[priority].empty()) ++priority;
  if (priority == drive.queues.size()) return false;
  const bool background = is_background(static_cast<ReadPriority>(priority));
  if (background && options_.background_depth > 0 &&
      drive.flying_background >= options_.background_depth) {
    return false;
  }
  if (free_pieces_.empty()) {
    free_pieces_.push_back(static_cast<int>(pieces_.size()));
    pieces_.emplace_back();
  }
  const int id = free_pieces_.back();
  free_pieces_.pop_back();
  Piece& piece = pieces_[static_cast<size_t>(id)];
  piece = drive.queues[priority].front();
  piece.is_background = background;
  drive.queues[priority].pop_front();
  if (drive.flying++ == 0) drive.busy_since_ns = clock_.now_ns();
  if (background) ++drive.flying_background;
  Request& owner = requests_[static_cast<size_t>(piece.request)];
  --owner.waiting;
  ++owner.flying;
  opened_.backend->submit(
      {piece.range.file, piece.range.offset, piece.range.into, static_cast<uint64_t>(id)});
  return true;
}

void ReadScheduler::take_arrivals(int min_count) {
  arrivals_.clear();
  opened_.backend->wait(&arrivals_, min_count);
  for (const RawCompletion& arrival : arrivals_) land(arrival);
}

void ReadScheduler::land(const RawCompletion& arrival) {
  MOTLEY_CHECK(arrival.id < pieces_.size(), "a completion of no read");
  const Piece piece = pieces_[arrival.id];
  free_pieces_.push_back(static_cast<int>(arrival.id));
  const DirectFile& file = files_[static_cast<size_t>(piece.range.file)];
  Request& owner = requests_[static_cast<size_t>(piece.request)];
  ReadStats::Class& counters = stats_.of(owner.priority);

  const Status status = finish_read(piece, arrival.result);
  const int64_t bytes =
      status.is_ok() ? file.present_bytes({piece.range.offset, length_of(piece.range)}) : 0;
  file.drop_cached({piece.range.offset, length_of(piece.range)});
  ++counters.reads;
  counters.bytes += bytes;

  Drive& drive = drives_[static_cast<size_t>(drive_of(piece.range.file))];
  drive.bytes += bytes;
  drive.outstanding_bytes -= length_of(piece.range);
  if (piece.is_background) --drive.flying_background;
  if (--drive.flying == 0) drive.busy_ns += clock_.now_ns() - drive.busy_since_ns;

  --owner.flying;
  if (!status.is_ok() && owner.status.is_ok()) {
    owner.status = status;
    ++counters.failures;
    drop_waiting(piece.request);
  }
  settle(piece.request);
}

// The status of a read that arrived, after a second try where it needs one.
Status ReadScheduler::finish_read(const Piece& piece, int64_t result) {
  const DirectFile& file = files_[static_cast<size_t>(piece.range.file)];
  const Request& owner = requests_[static_cast<size_t>(piece.request)];
  const int64_t wanted = file.present_bytes({piece.range.offset, length_of(piece.range)});
  if (!faults_.visit("io.stream.read").is_ok()) result = -EIO;
  if (result < wanted && owner.status.is_ok()) {
    ++stats_.of(owner.priority).retries;
    result = file.read(piece.range.offset, piece.range.into);
    if (!faults_.visit("io.stream.retry").is_ok()) result = -EIO;
  }
  if (result >= wanted) return Status::ok();
  if (result < 0) {
    return io_error(fmt::format("{}: cannot read {} bytes from offset {}", file.name(), wanted,
                                piece.range.offset),
                    static_cast<int>(-result));
  }
  return io_error(fmt::format("{}: only {} of {} bytes from offset {} are there; has it been cut?",
                              file.name(), result, wanted, piece.range.offset));
}

// Completes a request of which nothing is left to come.
void ReadScheduler::settle(int request) {
  Request& owner = requests_[static_cast<size_t>(request)];
  if (owner.waiting > 0 || owner.flying > 0) return;
  ready_.push_back({owner.tag, std::move(owner.status), seconds_since(clock_, owner.start_ns)});
  request_of_tag_.erase(owner.tag);
  free_requests_.push_back(request);
}

ReadStats ReadScheduler::stats() const {
  ReadStats stats = stats_;
  for (const Drive& drive : drives_) {
    const int64_t current = drive.flying > 0 ? clock_.now_ns() - drive.busy_since_ns : 0;
    stats.drives.push_back(
        {drive.device, drive.bytes, static_cast<double>(drive.busy_ns + current) * 1e-9});
  }
  return stats;
}

}  // namespace motley
