#include "io/stream/drive_probe.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>

#include "base/aligned_buffer.h"
#include "io/kept_results.h"
#include "io/stream/read_scheduler.h"

namespace motley {
namespace {

constexpr double kGoodEnough = 0.97;
constexpr int64_t kPageBytes = 4096;
constexpr int kReadsOfARun = 32;  // in flight at most (StreamedStoreOptions)

int64_t round_up(int64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// The places of one file where a record can begin.
struct Place {
  const File* file = nullptr;
  int64_t records = 0;  // whole ones
};

class Probe {
 public:
  Probe(const Clock& clock, FaultPoints& faults, const DriveProbeOptions& options)
      : clock_(clock),
        faults_(faults),
        options_(options),
        parts_(parts_of(options)),
        record_bytes_(std::accumulate(parts_.begin(), parts_.end(), int64_t{0})),
        random_(options.seed != 0 ? options.seed : static_cast<uint64_t>(clock.now_ns())) {}

  Result<DriveProbe> run(std::span<const File* const> files) {
    MOTLEY_RETURN_IF_ERROR(find_places(files));
    const auto fits = [&](int depth) {
      return depth == options_.depths.front() || depth * record_bytes_ <= options_.max_buffer_bytes;
    };
    int deepest = 0;
    for (const int depth : options_.depths) deepest = fits(depth) ? depth : deepest;
    MOTLEY_ASSIGN_OR_RETURN(buffer_,
                            AlignedBuffer::allocate(static_cast<size_t>(deepest * record_bytes_)));
    std::memset(buffer_.data(), 1, buffer_.size());  // page faults are not the drive's
    MOTLEY_ASSIGN_OR_RETURN(result_.drive, drive_identity(*places_.front().file));
    for (const int depth : options_.depths) {
      if (!fits(depth)) break;
      MOTLEY_ASSIGN_OR_RETURN(const double rate, measure(depth, false));
      result_.random.push_back({depth, rate});
    }
    MOTLEY_ASSIGN_OR_RETURN(result_.sequential_bytes_per_second,
                            measure(result_.best_depth(), true));
    result_.record_class_bytes = record_class(options_.record_bytes);
    result_.parts = static_cast<int>(parts_.size());
    result_.taken_unix_s = unix_now_s();
    return result_;
  }

 private:
  static std::vector<int64_t> parts_of(const DriveProbeOptions& options) {
    std::vector<int64_t> parts = options.part_bytes;
    if (parts.empty()) parts.push_back(options.record_bytes);
    for (int64_t& bytes : parts) bytes = round_up(bytes);
    return parts;
  }

  Status find_places(std::span<const File* const> files) {
    std::string drive;
    for (const File* file : files) {
      MOTLEY_ASSIGN_OR_RETURN(const std::string its, drive_identity(*file));
      if (drive.empty()) drive = its;
      const int64_t records = file->size() / record_bytes_;
      if (its == drive && records > 0) places_.push_back({file, records});
      if (its == drive) records_ += records;
    }
    if (!places_.empty()) return Status::ok();
    return invalid_argument(
        fmt::format("cannot probe the drive: none of {} files holds a record of {} bytes",
                    files.size(), record_bytes_));
  }

  Result<std::unique_ptr<ReadScheduler>> open(int depth) {
    std::vector<DirectFile> direct;
    for (const Place& place : places_) {
      MOTLEY_ASSIGN_OR_RETURN(DirectFile file,
                              DirectFile::open(faults_, *place.file, options_.cache_use));
      direct.push_back(std::move(file));
    }
    result_.is_direct = direct.front().is_direct();
    result_.reason = direct.front().reason();
    // Parts are in flight together, as many as a run allows.
    const int parts = static_cast<int>(parts_.size());
    const int reads = std::min(depth * parts, std::max(depth, kReadsOfARun));
    MOTLEY_ASSIGN_OR_RETURN(auto scheduler, ReadScheduler::open(clock_, faults_, std::move(direct),
                                                                {.depth = reads,
                                                                 .backend = options_.backend,
                                                                 .threads = std::min(reads, 256)}));
    result_.backend = scheduler->backend_name();
    if (result_.reason.empty()) result_.reason = scheduler->backend_reason();
    return scheduler;
  }

  // Keeps `depth` records wanted for the time given, then lets the last ones arrive. The scheduler
  // cuts large ones as it does in a run, so its depth means the same.
  Result<double> measure(int depth, bool in_order) {
    MOTLEY_ASSIGN_OR_RETURN(const auto scheduler, open(depth));
    const std::span<std::byte> all[] = {buffer_.bytes()};
    // Without registered buffers a run reads as well, and so does this.
    static_cast<void>(scheduler->register_buffers(all).is_ok());
    int64_t turn = any_record();
    std::vector<ReadRange> ranges;
    const auto submit = [&](uint64_t slot) {
      ++turn;
      place_record(turn, in_order, slot, &ranges);
      for (const ReadRange& range : ranges) {
        const auto bytes = static_cast<int64_t>(range.into.size());
        scheduler->files()[static_cast<size_t>(range.file)].drop_cached({range.offset, bytes});
      }
      scheduler->submit(slot, ReadPriority::kDemandGateUp, ranges);
    };
    const int64_t start_ns = clock_.now_ns();
    for (int slot = 0; slot < depth; ++slot) submit(static_cast<uint64_t>(slot));
    int64_t arrived = 0;
    while (!scheduler->is_idle()) {
      for (const ReadCompletion& one : scheduler->wait()) {
        MOTLEY_RETURN_IF_ERROR(one.status.with_context("cannot probe the drive"));
        ++arrived;
        if (seconds_since(clock_, start_ns) < options_.seconds_per_depth) submit(one.tag);
      }
    }
    const double seconds = std::max(seconds_since(clock_, start_ns), 1e-9);
    return static_cast<double>(arrived * record_bytes_) / seconds;
  }

  int64_t any_record() { return std::uniform_int_distribution<int64_t>(0, records_ - 1)(random_); }

  // Where the parts of record `turn` are read from. In order, each part follows that of the record
  // before; else each lies anywhere.
  void place_record(int64_t turn, bool in_order, uint64_t slot, std::vector<ReadRange>* ranges) {
    ranges->clear();
    auto at = static_cast<size_t>(slot) * static_cast<size_t>(record_bytes_);
    for (size_t part = 0; part < parts_.size(); ++part) {
      const int64_t bytes = parts_[part];
      int64_t position = any_record() * record_bytes_;
      if (in_order) {
        const int64_t begin = records_ * static_cast<int64_t>(part) / std::ssize(parts_);
        position = (begin * record_bytes_ + turn * bytes) % (records_ * record_bytes_);
      }
      ranges->push_back(
          range_at(position, buffer_.bytes().subspan(at, static_cast<size_t>(bytes))));
      at += static_cast<size_t>(bytes);
    }
  }

  // `position` counts bytes over the whole records of all places.
  ReadRange range_at(int64_t position, std::span<std::byte> into) const {
    int file = 0;
    const auto bytes_of = [&](int index) {
      return places_[static_cast<size_t>(index)].records * record_bytes_;
    };
    while (position >= bytes_of(file)) position -= bytes_of(file++);
    return {file, std::min(position, bytes_of(file) - std::ssize(into)), into};
  }

  const Clock& clock_;
  FaultPoints& faults_;
  const DriveProbeOptions& options_;
  const std::vector<int64_t> parts_;  // of a record, whole pages each
  const int64_t record_bytes_;        // their sum
  std::mt19937_64 random_;
  std::vector<Place> places_;
  int64_t records_ = 0;  // of all places
  AlignedBuffer buffer_;
  DriveProbe result_;
};

std::string identity_text(const struct stat& facts, const struct statfs& system) {
  uint64_t id = 0;
  static_assert(sizeof system.f_fsid == sizeof id);
  std::memcpy(&id, &system.f_fsid, sizeof id);
  return fmt::format("{}:{} {:016x}", major(facts.st_dev), minor(facts.st_dev), id);
}

}  // namespace

double DriveProbe::best_bytes_per_second() const {
  double best = 0;
  for (const DriveRate& rate : random) best = std::max(best, rate.bytes_per_second);
  return best;
}

int DriveProbe::best_depth() const {
  MOTLEY_CHECK(!random.empty(), "a probe without depths");
  const double enough = kGoodEnough * best_bytes_per_second();
  return std::find_if(random.begin(), random.end(),
                      [&](const DriveRate& rate) { return rate.bytes_per_second >= enough; })
      ->depth;
}

Result<DriveProbe> probe_drive(const Clock& clock, FaultPoints& faults,
                               std::span<const File* const> files,
                               const DriveProbeOptions& options) {
  MOTLEY_CHECK(options.record_bytes > 0 && !options.depths.empty() && options.depths.front() >= 1 &&
                   std::is_sorted(options.depths.begin(), options.depths.end()),
               "a probe needs a record size and ascending depths");
  return Probe(clock, faults, options).run(files);
}

Result<std::string> drive_identity(const File& file) {
  struct stat facts{};
  struct statfs system{};
  if (fstat(file.descriptor(), &facts) != 0 || fstatfs(file.descriptor(), &system) != 0) {
    return io_error(file.name(), errno);
  }
  return identity_text(facts, system);
}

Result<std::string> drive_identity(const std::string& path) {
  struct stat facts{};
  struct statfs system{};
  if (stat(path.c_str(), &facts) != 0 || statfs(path.c_str(), &system) != 0) {
    return io_error(path, errno);
  }
  return identity_text(facts, system);
}

int64_t record_class(int64_t record_bytes) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(record_bytes)));
}

}  // namespace motley
