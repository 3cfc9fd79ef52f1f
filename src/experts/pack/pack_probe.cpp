#include "experts/pack/pack_probe.h"

#include <algorithm>
#include <random>

#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "experts/expert_layout.h"
#include "io/stream/read_scheduler.h"

namespace motley {
namespace {

constexpr int kDepth = 32;  // as a streamed run's

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Probe {
 public:
  Probe(Context& context, const PackModel& model, const PackProbeOptions& options)
      : context_(context),
        model_(model),
        options_(options),
        layout_(ExpertLayout::create(model.layers, model.files())),
        random_(options.seed != 0 ? options.seed : static_cast<uint64_t>(context.clock.now_ns())) {
    for (int layer = 0; layer < layout_.layers(); ++layer) {
      if (layout_.experts(layer) > 0) layers_.push_back(layer);
    }
  }

  Result<PackProbe> run() {
    PackProbe probe{.bytes_per_expert = static_cast<double>(layout_.payload_bytes()) /
                                        static_cast<double>(layout_.expert_count())};
    for (const int layer : layers_) {
      for (int expert = 0; expert < layout_.experts(layer); ++expert) {
        const ExpertReads reads = layout_.reads(layer, expert);
        probe.ranges_per_expert += static_cast<double>(reads.gate_up.size() + reads.down.size());
      }
    }
    probe.ranges_per_expert /= static_cast<double>(layout_.expert_count());
    slot_bytes_ = 0;
    for (const int layer : layers_) {
      const ExpertWeights& expert = model_.layers[static_cast<size_t>(layer)].front();
      slot_bytes_ = std::max(slot_bytes_, RecordShape::of(expert).bytes());
    }
    slot_bytes_ = std::max(slot_bytes_, layout_.slot_bytes());
    MOTLEY_ASSIGN_OR_RETURN(
        memory_, AlignedBuffer::allocate(static_cast<size_t>(slot_bytes_ * options_.at_once)));
    std::fill_n(memory_.data(), memory_.size(), std::byte{1});  // page faults are not the drive's
    MOTLEY_RETURN_IF_ERROR(open());
    std::vector<double> plain;
    std::vector<double> packed;
    for (int round = 0; round < options_.rounds; ++round) {
      MOTLEY_ASSIGN_OR_RETURN(const double one, measure(false));
      MOTLEY_ASSIGN_OR_RETURN(const double two, measure(true));
      plain.push_back(one);
      packed.push_back(two);
    }
    probe.plain_bytes_per_s = median(plain);
    probe.packed_bytes_per_s = median(packed);
    return probe;
  }

 private:
  Status open() {
    std::vector<DirectFile> files;
    for (const MappedFile& shard : model_.checkpoint->shards()) {
      MOTLEY_ASSIGN_OR_RETURN(DirectFile file, DirectFile::open(context_.faults, shard.file()));
      files.push_back(std::move(file));
    }
    MOTLEY_ASSIGN_OR_RETURN(
        reads_, ReadScheduler::open(context_.clock, context_.faults, std::move(files),
                                    {.depth = kDepth, .backend = options_.io, .threads = kDepth}));
    return Status::ok();
  }

  Result<double> measure(bool packed) {
    const int64_t start_ns = context_.clock.now_ns();
    int64_t started = 0;
    int64_t bytes = 0;
    for (int slot = 0; slot < options_.at_once; ++slot, ++started) {
      bytes += start(slot, packed);
    }
    // Each expert is two requests, as in a run.
    std::vector<int> parts(static_cast<size_t>(options_.at_once), 2);
    while (!reads_->is_idle()) {
      for (const ReadCompletion& one : reads_->wait()) {
        MOTLEY_RETURN_IF_ERROR(one.status.with_context("cannot probe the drive"));
        const auto slot = static_cast<int>(one.tag / 2);
        if (--parts[static_cast<size_t>(slot)] > 0) continue;
        if (seconds_since(context_.clock, start_ns) > options_.seconds_per_turn) continue;
        parts[static_cast<size_t>(slot)] = 2;
        bytes += start(slot, packed);
      }
    }
    return static_cast<double>(bytes) / std::max(seconds_since(context_.clock, start_ns), 1e-9);
  }

  // Starts the reads of a random expert; the bytes of weights that it has.
  int64_t start(int slot, bool packed) {
    const int layer = layers_[random_() % layers_.size()];
    const auto expert = static_cast<int>(random_() % static_cast<size_t>(layout_.experts(layer)));
    const ExpertWeights& weights =
        model_.layers[static_cast<size_t>(layer)][static_cast<size_t>(expert)];
    ExpertReads reads = layout_.reads(layer, expert);
    std::array<ExpertRead, 2> record;
    if (packed) {
      record = record_like(weights, reads.gate_up.front());
      reads = {{record.data(), 1}, {record.data() + 1, 1}};
    }
    submit(slot, 0, reads.gate_up);
    submit(slot, 1, reads.down);
    return weights.gate.bytes() + weights.up.bytes() + weights.down.bytes();
  }

  // As many bytes in two pieces that follow each other, somewhere in the file of `near`.
  std::array<ExpertRead, 2> record_like(const ExpertWeights& weights, const ExpertRead& near) {
    const RecordShape shape = RecordShape::of(weights);
    const int64_t size = reads_->files()[static_cast<size_t>(near.file)].size();
    const int64_t room = std::max<int64_t>(0, size - shape.bytes()) / kRecordBlock;
    const int64_t offset = std::uniform_int_distribution<int64_t>(0, room)(random_) * kRecordBlock;
    return {
        ExpertRead{near.file, offset, shape.gate_up_bytes, 0},
        ExpertRead{near.file, offset + shape.gate_up_bytes, shape.down_bytes, shape.gate_up_bytes}};
  }

  void submit(int slot, int part, std::span<const ExpertRead> list) {
    ranges_.clear();
    for (const ExpertRead& read : list) {
      const DirectFile& file = reads_->files()[static_cast<size_t>(read.file)];
      const int64_t offset = std::min(read.offset, std::max<int64_t>(file.size() - 1, 0));
      const FileRange range =
          file.aligned_range(offset, std::min(read.bytes, file.size() - offset));
      file.drop_cached(range);
      ranges_.push_back(
          {.file = read.file,
           .offset = range.offset,
           .into = memory_.bytes().subspan(static_cast<size_t>(slot * slot_bytes_ + read.at),
                                           static_cast<size_t>(range.bytes))});
    }
    reads_->submit(static_cast<uint64_t>(slot * 2 + part),
                   part == 0 ? ReadPriority::kDemandGateUp : ReadPriority::kDemandDown, ranges_);
  }

  Context& context_;
  const PackModel& model_;
  const PackProbeOptions& options_;
  const ExpertLayout layout_;
  std::vector<int> layers_;  // with experts
  std::mt19937_64 random_;
  int64_t slot_bytes_ = 0;
  AlignedBuffer memory_;
  std::unique_ptr<ReadScheduler> reads_;
  std::vector<ReadRange> ranges_;
};

}  // namespace

Result<PackProbe> probe_packing(Context& context, const PackModel& model,
                                const PackProbeOptions& options) {
  return Probe(context, model, options).run();
}

}  // namespace motley
