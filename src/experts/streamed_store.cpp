#include "experts/streamed_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "experts/cache/frequency_recency.h"
#include "io/finite_scan.h"
#include "io/gguf_modules.h"

namespace motley {
namespace {

// Layers without experts take no part in the cache.
std::vector<int> number_layers(const ExpertLayout& layout) {
  std::vector<int> numbers;
  int next = 0;
  for (int layer = 0; layer < layout.layers(); ++layer) {
    numbers.push_back(layout.experts(layer) > 0 ? next++ : -1);
  }
  return numbers;
}

int most_experts(const ExpertLayout& layout) {
  int most = 0;
  for (int layer = 0; layer < layout.layers(); ++layer) {
    most = std::max(most, layout.experts(layer));
  }
  return most;
}

bool plane_is_finite(const WeightPlane& plane, int64_t rows, DType dtype) {
  return all_finite({plane.data, static_cast<size_t>(rows * plane.row_bytes)}, dtype);
}

bool scales_are_usable(const WeightMatrix& matrix) {
  if (matrix.format == WeightFormat::kBlockFloat) {
    const auto* scales = reinterpret_cast<const uint8_t*>(matrix.scales.data);
    const auto bytes = static_cast<size_t>(matrix.scale_plane_bytes());
    return find_bad_scale(matrix.block.scale, {scales, bytes}) < 0;
  }
  if (!gguf_scales_are_finite(matrix)) return false;
  return matrix.scales.data == nullptr ||
         (plane_is_finite(matrix.scales, matrix.rows, matrix.scale_dtype) &&
          plane_is_finite(matrix.biases, matrix.rows, matrix.scale_dtype));
}

}  // namespace

StreamStats StreamStats::operator-(const StreamStats& earlier) const {
  return {.uses = uses - earlier.uses,
          .hits = hits - earlier.hits,
          .ahead_used = ahead_used - earlier.ahead_used,
          .ahead_wasted = ahead_wasted - earlier.ahead_wasted,
          .evictions = evictions - earlier.evictions,
          .read_bytes = read_bytes - earlier.read_bytes,
          .reads = reads - earlier.reads,
          .retries = retries - earlier.retries,
          .wait_s = wait_s - earlier.wait_s,
          .compute_s = compute_s - earlier.compute_s,
          .start_s = start_s - earlier.start_s,
          .busy_s = busy_s - earlier.busy_s,
          .guarded = guarded - earlier.guarded};
}

Result<std::unique_ptr<StreamedExpertStore>> StreamedExpertStore::create(
    Context& context, ExpertLayout layout, std::vector<DirectFile> files,
    const StreamedStoreOptions& options) {
  MOTLEY_ASSIGN_OR_RETURN(
      std::unique_ptr<ReadScheduler> reads,
      ReadScheduler::open(
          context.clock, context.faults, std::move(files),
          {.depth = options.depth, .backend = options.io, .threads = options.depth}));
  return create(context, std::move(layout), std::move(reads), options);
}

Result<std::unique_ptr<StreamedExpertStore>> StreamedExpertStore::create(
    Context& context, ExpertLayout layout, std::unique_ptr<ReadScheduler> reads,
    const StreamedStoreOptions& options) {
  const CacheShape shape{.layers = layout.expert_layers(),
                         .experts = most_experts(layout),
                         .slots = static_cast<int>(options.slots),
                         .floor = options.floor};
  MOTLEY_RETURN_IF_ERROR(check_cache_shape(shape));
  MOTLEY_ASSIGN_OR_RETURN(
      AlignedBuffer memory,
      AlignedBuffer::allocate(static_cast<size_t>(options.slots * layout.slot_bytes())));
  // Not registered with the ring: that would touch every page now, which takes longer than all
  // that registered reads save.
  std::vector<int> numbers = number_layers(layout);
  std::unique_ptr<StreamedExpertStore> store(
      new StreamedExpertStore(context, std::move(layout), std::move(numbers), shape, options,
                              std::move(memory), std::move(reads)));
  MOTLEY_RETURN_IF_ERROR(store->reads_.start_thread());
  return store;
}

StreamedExpertStore::StreamedExpertStore(Context& context, ExpertLayout layout,
                                         std::vector<int> cache_layers, const CacheShape& shape,
                                         const StreamedStoreOptions& options, AlignedBuffer memory,
                                         std::unique_ptr<ReadScheduler> reads)
    : context_(context),
      layout_(std::move(layout)),
      cache_layers_(std::move(cache_layers)),
      packed_(options.packed),
      check_(options.check),
      memory_(std::move(memory)),
      reads_(context.clock, context.faults, std::move(reads)),
      cache_(shape, make_frequency_recency(shape)),
      most_at_once_(static_cast<size_t>(options.wave_slots > 0
                                            ? std::min(options.wave_slots, cache_.largest_step())
                                            : cache_.largest_step())),
      slots_(static_cast<size_t>(shape.slots)),
      looks_ahead_(options.look_ahead) {
  for (int layer = 0; layer < layout_.layers(); ++layer) {
    checked_.emplace_back(static_cast<size_t>(layout_.experts(layer)), false);
  }
}

StreamedExpertStore::~StreamedExpertStore() = default;

Status StreamedExpertStore::for_each_wave(int layer, std::span<const int32_t> wanted, Wave compute,
                                          Meanwhile meanwhile) {
  check_guesses(layer, wanted);
  const auto nothing = [] {};
  for (size_t begin = 0; begin < wanted.size(); begin += most_at_once_) {
    const size_t count = std::min(most_at_once_, wanted.size() - begin);
    const bool is_last = begin + count == wanted.size();
    MOTLEY_RETURN_IF_ERROR(run_group(layer, wanted.subspan(begin, count), compute,
                                     is_last && looks_ahead_ ? meanwhile : Meanwhile(nothing)));
  }
  return Status::ok();
}

Status StreamedExpertStore::run_group(int layer, std::span<const int32_t> wanted, Wave compute,
                                      Meanwhile meanwhile) {
  failure_ = Status::ok();
  failed_.clear();
  make_room(wanted.size());
  const int64_t start_ns = context_.clock.now_ns();
  start_reads(layer, cache_.plan(cache_layers_[static_cast<size_t>(layer)], wanted));
  drop_guesses();
  start_s_ += seconds_since(context_.clock, start_ns);
  meanwhile();
  run_wave(compute);
  while (waiting_ > 0) {
    collect(/*block=*/true);
    if (waiting_ == 0) idle_since_ns_ = context_.clock.now_ns();
    run_wave(compute);
  }
  for (const int32_t slot : failed_) empty_slot(slot);
  return failure_;
}

void StreamedExpertStore::start_reads(int layer, const CachePlan& plan) {
  ready_.clear();
  for (const SlotAssignment& assigned : plan.experts) {
    if (!assigned.hit) {
      assign(assigned.slot, layer, assigned.expert, /*wanted=*/true);
      submit(assigned.slot, kGateUp, ReadPriority::kDemandGateUp);
    } else {
      use_slot(assigned.slot);
    }
  }
  for (const SlotAssignment& assigned : plan.experts) {
    if (!assigned.hit) submit(assigned.slot, kDown, ReadPriority::kDemandDown);
  }
  reads_.start();
}

// A step wants what a slot holds, or will hold.
void StreamedExpertStore::use_slot(int32_t index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  ahead_used_ += slot.is_ahead;
  slot.is_ahead = false;
  if (slot.parts_waiting > 0) {
    join_read(index);
  } else {
    ready_.push_back(index);
  }
}

void StreamedExpertStore::assign(int32_t index, int layer, int32_t expert, bool wanted) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  ahead_wasted_ += slot.is_ahead;
  slot = {
      .layer = layer, .expert = expert, .parts_waiting = 2, .wanted = wanted, .is_ahead = !wanted};
  ++(wanted ? waiting_ : ahead_);
}

void StreamedExpertStore::submit(int32_t slot, Part part, ReadPriority priority) {
  if (packed_ != nullptr) return submit_packed(slot, part, priority);
  const Slot& target = slots_[static_cast<size_t>(slot)];
  const ExpertReads reads = layout_.reads(target.layer, target.expert);
  const std::span<const ExpertRead> list = part == kGateUp ? reads.gate_up : reads.down;
  ranges_.clear();
  for (const ExpertRead& read : list) {
    // The layout's blocks are larger than many a drive's: the last one may reach beyond the file.
    const DirectFile& file = reads_.files()[static_cast<size_t>(read.file)];
    const FileRange range =
        file.aligned_range(read.offset, std::min(read.bytes, file.size() - read.offset));
    ranges_.push_back({.file = read.file,
                       .offset = range.offset,
                       .into = {slot_data(slot) + read.at, static_cast<size_t>(range.bytes)}});
  }
  reads_.submit(static_cast<uint64_t>(slot) * 2 + part, priority, ranges_);
}

// Of a record's copies the one whose drive has the least to do; if it turns out bad, another.
void StreamedExpertStore::submit_packed(int32_t slot, Part part, ReadPriority priority) {
  const Slot& target = slots_[static_cast<size_t>(slot)];
  const ExpertReads reads = layout_.reads(target.layer, target.expert);
  const ExpertRead& read = part == kGateUp ? reads.gate_up.front() : reads.down.front();
  std::vector<int> files;
  uint32_t copies = layout_.copies(target.layer, target.expert);
  for (int copy = 0; copies != 0; ++copy, copies >>= 1) {
    if ((copies & 1) != 0) files.push_back(read.file + copy * layout_.files_per_copy());
  }
  const int chosen = files.size() > 1 ? reads_.least_busy(files) : files.front();
  ReadGuard guard{.range = {.file = chosen,
                            .offset = read.offset,
                            .into = {slot_data(slot) + read.at, static_cast<size_t>(read.bytes)}}};
  const auto other =
      std::find_if(files.begin(), files.end(), [&](int file) { return file != chosen; });
  if (other != files.end()) guard.other_file = *other;
  if (check_) {
    const RecordSums& sums = packed_->sums(target.layer, target.expert);
    guard.checksum = part == kGateUp ? sums.gate_up : sums.down;
  }
  reads_.submit(static_cast<uint64_t>(slot) * 2 + part, priority, guard);
}

void StreamedExpertStore::collect(bool block) {
  const int64_t start_ns = context_.clock.now_ns();
  std::vector<ReadCompletion> arrived = reads_.take(block);
  if (block) wait_s_ += seconds_since(context_.clock, start_ns);
  for (ReadCompletion& completion : arrived) {
    const auto index = static_cast<int32_t>(completion.tag / 2);
    Slot& slot = slots_[static_cast<size_t>(index)];
    if (slot.failure.is_ok()) slot.failure = std::move(completion.status);
    if (--slot.parts_waiting == 0) arrive(index);
  }
}

void StreamedExpertStore::arrive(int32_t index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  if (slot.wanted && slot.failure.code() == StatusCode::kCancelled) {
    read_again(index);
    return;
  }
  slot.weights = layout_.weights_in(slot.layer, slot.expert, slot_data(index));
  if (slot.failure.is_ok()) slot.failure = check_scales(slot);
  if (!slot.wanted) {
    --ahead_;
    // A failure of what was read ahead is none yet: who wants the expert reads it again.
    const int cached = cache_layers_[static_cast<size_t>(slot.layer)];
    cache_.set_pinned(cached, slot.expert, slot.layer == sweep_layer_);
    if (!slot.failure.is_ok()) {
      slot.is_ahead = false;
      cache_.release(cached, slot.expert);
    }
    return;
  }
  --waiting_;
  if (slot.failure.is_ok()) {
    ready_.push_back(index);
    return;
  }
  failed_.push_back(index);
  if (failure_.is_ok()) {
    failure_ =
        slot.failure.with_context(fmt::format("expert {} of layer {}", slot.expert, slot.layer));
  }
}

Status StreamedExpertStore::check_scales(const Slot& slot) {
  std::vector<bool>::reference checked =
      checked_[static_cast<size_t>(slot.layer)][static_cast<size_t>(slot.expert)];
  if (checked) return Status::ok();
  const ExpertWeights& weights = slot.weights;
  for (const WeightMatrix* matrix : {&weights.gate, &weights.up, &weights.down}) {
    if (!scales_are_usable(*matrix)) {
      const bool is_block = matrix->format == WeightFormat::kBlockFloat;
      return corrupt(is_block ? "its scales hold NaN, zero or a negative"
                              : "its scales hold NaN or infinity");
    }
  }
  checked = true;
  return Status::ok();
}

void StreamedExpertStore::run_wave(Wave compute) {
  if (ready_.empty() || !failure_.is_ok()) {
    ready_.clear();
    return;
  }
  resolved_.clear();
  for (const int32_t index : ready_) {
    const Slot& slot = slots_[static_cast<size_t>(index)];
    resolved_.push_back({slot.expert, &slot.weights});
  }
  ready_.clear();
  const int64_t start_ns = context_.clock.now_ns();
  compute(resolved_);
  compute_s_ += seconds_since(context_.clock, start_ns);
}

void StreamedExpertStore::empty_slot(int32_t index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  ahead_wasted_ += slot.is_ahead;
  slot.is_ahead = false;
  cache_.release(cache_layers_[static_cast<size_t>(slot.layer)], slot.expert);
}

std::byte* StreamedExpertStore::slot_data(int32_t slot) {
  return memory_.data() + int64_t{slot} * layout_.slot_bytes();
}

// The policy that the constructor made.
std::vector<float> StreamedExpertStore::heat() const {
  return static_cast<const FrequencyRecency&>(cache_.policy()).heat();
}

void StreamedExpertStore::set_heat(std::span<const float> uses_per_step) {
  if (uses_per_step.empty()) return;
  static_cast<FrequencyRecency&>(cache_.policy()).set_heat(uses_per_step);
}

StreamStats StreamedExpertStore::stats() const {
  const ReadStats read = reads_.stats();
  const CacheCounts& cache = cache_.counts();
  StreamStats stats{.uses = cache.uses,
                    .hits = cache.hits - ahead_used_,
                    .ahead_used = ahead_used_,
                    .ahead_wasted = ahead_wasted_,
                    .evictions = cache.evictions,
                    .read_bytes = read.total_bytes(),
                    .wait_s = wait_s_,
                    .compute_s = compute_s_,
                    .start_s = start_s_,
                    .guarded = reads_.guard_stats()};
  for (const ReadStats::Class& of : read.classes) {
    stats.reads += of.reads;
    stats.retries += of.retries;
  }
  for (const ReadStats::Drive& drive : read.drives) {
    stats.busy_s = std::max(stats.busy_s, drive.busy_seconds);
  }
  return stats;
}

std::string StreamedExpertStore::reads_description() const {
  std::string text(reads_.backend_name());
  if (!reads_.backend_reason().empty()) text += fmt::format(" ({})", reads_.backend_reason());
  const std::vector<DirectFile>& files = reads_.files();
  const auto buffered = std::find_if(files.begin(), files.end(),
                                     [](const DirectFile& file) { return !file.is_direct(); });
  if (buffered == files.end()) return text + ", direct";
  return text + fmt::format(", buffered ({})", buffered->reason());
}

}  // namespace motley
