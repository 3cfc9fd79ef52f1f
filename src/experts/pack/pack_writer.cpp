#include "experts/pack/pack_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "experts/pack/batch_reader.h"
#include "experts/pack/pack_check.h"
#include "experts/pack/pack_directory.h"
#include "experts/pack/pack_space.h"
#include "experts/record_shape.h"

namespace motley {
namespace {

// What a crash may cost: written, but without entries yet.
constexpr int64_t kCommitBytes = int64_t{256} << 20;

class PackWriter {
 public:
  PackWriter(Context& context, const PackModel& model, const PackOptions& options)
      : context_(context),
        model_(model),
        options_(options),
        source_(ExpertLayout::create(model.layers, model.files())) {}

  Result<PackResult> run() {
    const int64_t start_ns = context_.clock.now_ns();
    MOTLEY_RETURN_IF_ERROR(open_directories());
    for (PackDirectory& pack : packs_) MOTLEY_RETURN_IF_ERROR(keep_what_is_right(pack));
    list_jobs();
    Status status = write_jobs();
    // What was written before an error or a stop is kept.
    for (PackDirectory& pack : packs_) {
      const Status committed = pack.commit();
      if (status.is_ok()) status = committed;
    }
    if (status.code() == StatusCode::kCancelled) status = stopped();
    MOTLEY_RETURN_IF_ERROR(status);
    MOTLEY_RETURN_IF_ERROR(model_.checkpoint->check_unchanged());
    result_.written = written_;
    result_.seconds = seconds_since(context_.clock, start_ns);
    return result_;
  }

 private:
  // An expert, and the directories that lack it.
  struct Job {
    int layer = 0;
    size_t layer_index = 0;
    int expert = 0;
    uint32_t packs = 0;
  };

  Status open_directories() {
    MOTLEY_ASSIGN_OR_RETURN(const std::vector<PackManifest> manifests,
                            plan_packs(model_, options_));
    for (size_t i = 0; i < manifests.size(); ++i) {
      result_.records += manifests[i].records();
      result_.bytes += manifests[i].bytes();
      MOTLEY_ASSIGN_OR_RETURN(
          PackDirectory pack,
          PackDirectory::create(context_.faults, options_.directories[i], manifests[i]));
      packs_.push_back(std::move(pack));
    }
    return Status::ok();
  }

  Status keep_what_is_right(PackDirectory& pack) {
    const int64_t before = done_bytes_;
    Result<PackCheck> check =
        check_records(context_, pack,
                      {.io = options_.io,
                       .progress = [&](int64_t done, int64_t) { report(before + done); },
                       .stop = options_.stop});
    if (check.status().code() == StatusCode::kCancelled) return stopped();
    MOTLEY_RETURN_IF_ERROR(check.status());
    const auto damaged = static_cast<int64_t>(check->damaged.size());
    result_.repaired += damaged;
    result_.kept += check->records - check->missing - damaged;
    done_bytes_ = before;
    for (int64_t i = 0; i < check->records; ++i) {
      if (pack.entry(i)) done_bytes_ += pack.manifest().layers[pack.record(i).layer].record_bytes();
    }
    report(done_bytes_);
    return Status::ok();
  }

  void list_jobs() {
    const std::vector<PackLayer>& layers = packs_.front().manifest().layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      for (int expert = 0; expert < layers[i].experts; ++expert) {
        Job job{.layer = layers[i].layer, .layer_index = i, .expert = expert};
        for (size_t p = 0; p < packs_.size(); ++p) {
          const PackManifest& its = packs_[p].manifest();
          if (part_of_expert(its.parts, job.layer, expert) != its.part) continue;
          if (!packs_[p].entry(packs_[p].index_of(i, expert))) job.packs |= uint32_t{1} << p;
        }
        if (job.packs != 0) jobs_.push_back(job);
      }
    }
  }

  Status write_jobs() {
    if (jobs_.empty()) return Status::ok();
    for (const Job& job : jobs_) MOTLEY_RETURN_IF_ERROR(prepare(job));
    int64_t record_bytes = 0;
    for (const PackLayer& layer : packs_.front().manifest().layers) {
      record_bytes = std::max(record_bytes, layer.record_bytes());
    }
    for (int worker = 0; worker < context_.threads.size(); ++worker) {
      MOTLEY_ASSIGN_OR_RETURN(AlignedBuffer record,
                              AlignedBuffer::allocate(static_cast<size_t>(record_bytes)));
      records_.push_back(std::move(record));
    }
    std::vector<DirectFile> files;
    for (const MappedFile& shard : model_.checkpoint->shards()) {
      MOTLEY_ASSIGN_OR_RETURN(DirectFile file, DirectFile::open(context_.faults, shard.file()));
      files.push_back(std::move(file));
    }
    MOTLEY_ASSIGN_OR_RETURN(
        BatchReader reader,
        BatchReader::create(context_, std::move(files), source_.slot_bytes(), options_.io));
    return reader.run(
        std::ssize(jobs_),
        {.reads = [&](int64_t job) { return reads_of(jobs_[static_cast<size_t>(job)]); },
         .use = [&](int worker, int64_t job, const std::byte* data,
                    const Status& arrived) { return write(worker, job, data, arrived); },
         .after_batch = [&](int64_t) { return after_batch(); }});
  }

  // Opens files and takes their room before anything is read.
  Status prepare(const Job& job) {
    for (size_t p = 0; p < packs_.size(); ++p) {
      if ((job.packs >> p & 1) == 0) continue;
      MOTLEY_RETURN_IF_ERROR(packs_[p].prepare_layer(job.layer_index));
    }
    return Status::ok();
  }

  std::span<const ExpertRead> reads_of(const Job& job) const {
    const ExpertReads reads = source_.reads(job.layer, job.expert);
    // Those of down follow those of gate and up.
    return {reads.gate_up.data(), reads.gate_up.size() + reads.down.size()};
  }

  Status write(int worker, int64_t index, const std::byte* data, const Status& arrived) {
    const Job& job = jobs_[static_cast<size_t>(index)];
    MOTLEY_RETURN_IF_ERROR(
        arrived.with_context(fmt::format("expert {} of layer {}", job.expert, job.layer)));
    const ExpertWeights expert = source_.weights_in(job.layer, job.expert, data);
    const RecordShape shape = RecordShape::of(expert);
    const auto bytes = static_cast<size_t>(shape.bytes());
    const auto gate_up = static_cast<size_t>(shape.gate_up_bytes);
    const std::span<std::byte> record = records_[static_cast<size_t>(worker)].bytes().first(bytes);
    write_record(expert, shape, record);
    const RecordSums sums{.gate_up = hash_bytes(record.first(gate_up)),
                          .down = hash_bytes(record.subspan(gate_up))};
    for (size_t p = 0; p < packs_.size(); ++p) {
      if ((job.packs >> p & 1) == 0) continue;
      const int64_t at = packs_[p].index_of(job.layer_index, job.expert);
      MOTLEY_RETURN_IF_ERROR(packs_[p].write_record(at, record, sums));
      written_.fetch_add(1, std::memory_order_relaxed);
      written_bytes_.fetch_add(shape.bytes(), std::memory_order_relaxed);
    }
    return Status::ok();
  }

  Status after_batch() {
    report(done_bytes_ + written_bytes_);
    for (PackDirectory& pack : packs_) {
      if (pack.uncommitted_bytes() >= kCommitBytes) MOTLEY_RETURN_IF_ERROR(pack.commit());
    }
    return options_.stop && options_.stop() ? cancelled("stopped") : Status::ok();
  }

  void report(int64_t done_bytes) const {
    if (options_.progress) options_.progress(done_bytes, result_.bytes);
  }

  Status stopped() const {
    int64_t there = 0;
    for (const PackDirectory& pack : packs_) there += pack.entry_count();
    return cancelled(fmt::format("stopped with {} of {} records written; the same command goes on",
                                 there, result_.records));
  }

  Context& context_;
  const PackModel& model_;
  const PackOptions& options_;
  const ExpertLayout source_;
  std::vector<PackDirectory> packs_;
  std::vector<Job> jobs_;
  std::vector<AlignedBuffer> records_;  // one per worker
  PackResult result_;
  int64_t done_bytes_ = 0;  // kept
  std::atomic<int64_t> written_{0};
  std::atomic<int64_t> written_bytes_{0};
};

}  // namespace

Result<std::vector<PackManifest>> plan_packs(const PackModel& model, const PackOptions& options) {
  const int parts = options.mirror ? 1 : static_cast<int>(options.directories.size());
  MOTLEY_ASSIGN_OR_RETURN(const PackManifest first, manifest_of(model, parts, 0));
  std::vector<PackManifest> manifests(options.directories.size(), first);
  for (int part = 0; part < parts; ++part) manifests[static_cast<size_t>(part)].part = part;
  MOTLEY_RETURN_IF_ERROR(check_pack_space(options.directories, manifests));
  return manifests;
}

Result<PackResult> write_packs(Context& context, const PackModel& model,
                               const PackOptions& options) {
  return PackWriter(context, model, options).run();
}

}  // namespace motley
