#include "experts/pack/pack_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/clock.h"
#include "base/hash.h"
#include "experts/pack/batch_reader.h"

namespace motley {
namespace {

class Checker {
 public:
  Checker(Context& context, PackDirectory& pack, const PackCheckOptions& options)
      : context_(context), pack_(pack), options_(options) {}

  Result<PackCheck> run() {
    const int64_t start_ns = context_.clock.now_ns();
    MOTLEY_RETURN_IF_ERROR(choose());
    if (!reads_.empty()) {
      MOTLEY_ASSIGN_OR_RETURN(BatchReader reader, BatchReader::create(context_, std::move(files_),
                                                                      job_bytes_, options_.io));
      MOTLEY_RETURN_IF_ERROR(reader.run(
          std::ssize(reads_),
          {.reads = [&](int64_t job) { return std::span(&reads_[static_cast<size_t>(job)], 1); },
           .use = [&](int, int64_t job, const std::byte* data,
                      const Status& arrived) { return use(job, data, arrived); },
           .after_batch = [&](int64_t done) { return after_batch(done); }}));
    }
    std::sort(check_.damaged.begin(), check_.damaged.end(),
              [](const DamagedRecord& a, const DamagedRecord& b) { return a.index < b.index; });
    check_.seconds = seconds_since(context_.clock, start_ns);
    return std::move(check_);
  }

 private:
  // The records that have an entry; those that their file is too short for are damaged already.
  Status choose() {
    const PackManifest& manifest = pack_.manifest();
    check_.records = manifest.records();
    std::vector<int> file_of_layer(manifest.layers.size(), -2);
    for (int64_t index = 0; index < check_.records; ++index) {
      if (!pack_.entry(index)) {
        ++check_.missing;
        continue;
      }
      const PackRecord place = pack_.record(index);
      const int64_t bytes = manifest.layers[place.layer].record_bytes();
      int& file = file_of_layer[place.layer];
      if (file == -2) {
        MOTLEY_ASSIGN_OR_RETURN(file, open_layer(place.layer));
      }
      if (file < 0 || files_[static_cast<size_t>(file)].size() < place.offset + bytes) {
        add_damage(index, true, true, "the file ends before it");
        continue;
      }
      reads_.push_back({.file = file, .offset = place.offset, .bytes = bytes});
      indices_.push_back(index);
      job_bytes_ = std::max(job_bytes_, bytes);
      total_bytes_ += bytes;
    }
    return Status::ok();
  }

  // The file's number, -1 when it is not there.
  Result<int> open_layer(size_t layer) {
    const Result<File> file = File::open(context_.faults, pack_.file_path(layer));
    if (file.status().code() == StatusCode::kNotFound) return -1;
    if (!file.is_ok()) return file.status();
    if (file->size() == 0) return -1;
    MOTLEY_ASSIGN_OR_RETURN(DirectFile direct, DirectFile::open(context_.faults, *file));
    files_.push_back(std::move(direct));
    return static_cast<int>(files_.size()) - 1;
  }

  Status use(int64_t job, const std::byte* data, const Status& arrived) {
    const int64_t index = indices_[static_cast<size_t>(job)];
    const PackLayer& layer = pack_.manifest().layers[pack_.record(index).layer];
    if (!arrived.is_ok()) {
      add_damage(index, true, true, arrived.message());
      return Status::ok();
    }
    const auto part = [&](int64_t begin, int64_t bytes) {
      return hash_bytes(std::span(data + begin, static_cast<size_t>(bytes)));
    };
    const RecordSums& sums = *pack_.entry(index);
    const bool gate_up = part(0, layer.gate_up_bytes) != sums.gate_up;
    const bool down = part(layer.gate_up_bytes, layer.down_bytes) != sums.down;
    if (gate_up || down) add_damage(index, gate_up, down, "its checksum differs");
    return Status::ok();
  }

  Status after_batch(int64_t done) {
    for (; counted_ < done; ++counted_) {
      check_.read_bytes += reads_[static_cast<size_t>(counted_)].bytes;
    }
    if (options_.progress) options_.progress(check_.read_bytes, total_bytes_);
    if (options_.stop && options_.stop()) return cancelled("stopped");
    return Status::ok();
  }

  void add_damage(int64_t index, bool gate_up, bool down, std::string reason) {
    const PackRecord place = pack_.record(index);
    const PackLayer& layer = pack_.manifest().layers[place.layer];
    const int64_t begin = gate_up ? 0 : layer.gate_up_bytes;
    const int64_t end = down ? layer.record_bytes() : layer.gate_up_bytes;
    const std::lock_guard lock(mutex_);
    check_.damaged.push_back({.index = index,
                              .layer = layer.layer,
                              .expert = place.expert,
                              .gate_up = gate_up,
                              .down = down,
                              .file = pack_.file_path(place.layer),
                              .offset = place.offset + begin,
                              .bytes = end - begin,
                              .reason = std::move(reason)});
  }

  Context& context_;
  PackDirectory& pack_;
  const PackCheckOptions& options_;
  PackCheck check_;
  std::mutex mutex_;  // protects check_.damaged
  std::vector<DirectFile> files_;
  std::vector<ExpertRead> reads_;
  std::vector<int64_t> indices_;  // of reads_
  int64_t job_bytes_ = 0;
  int64_t total_bytes_ = 0;
  int64_t counted_ = 0;
};

}  // namespace

Result<PackCheck> check_records(Context& context, PackDirectory& pack,
                                const PackCheckOptions& options) {
  MOTLEY_ASSIGN_OR_RETURN(PackCheck check, Checker(context, pack, options).run());
  std::vector<int64_t> indices;
  for (const DamagedRecord& record : check.damaged) indices.push_back(record.index);
  MOTLEY_RETURN_IF_ERROR(pack.forget(indices));
  check.marked = true;
  return check;
}

Result<PackCheck> check_pack(Context& context, const std::string& directory,
                             const PackCheckOptions& options) {
  Result<PackDirectory> pack =
      PackDirectory::open(context.faults, directory, PackDirectory::Access::kRepair);
  if (pack.is_ok()) return check_records(context, *pack, options);
  // On read-only media, or while somebody streams from it, what is damaged can be listed at least.
  MOTLEY_ASSIGN_OR_RETURN(
      PackDirectory readable,
      PackDirectory::open(context.faults, directory, PackDirectory::Access::kRead));
  return Checker(context, readable, options).run();
}

}  // namespace motley
