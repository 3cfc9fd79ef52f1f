// The store of a model whose experts stay on the drive: a cache of slots, filled by direct reads.
//
// A step's experts are looked up in the cache; those it holds are computed while the others arrive,
// and each of these as soon as its three matrices are there. Nothing depends on the order of
// arrival: experts are summed by id afterwards (R5). A union larger than the cache allows runs in
// groups. Reads land in the slot that the kernels compute from; the page cache is not used.
// Scales are checked for NaN when an expert arrives for the first time.
// Guesses about the next layer (look_ahead.h) are read when nothing more urgent is to be read; what
// has not started is dropped once that layer's choice is known.
// Errors: a read that failed twice fails the step with kIo, naming layer, expert, file, offset and
// reason; the slots of that step's failed experts are empty again and the next step may try anew.
// Ownership: owns slots, files and reads in flight; layout by value.
// Thread rule: one step at a time, from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"
#include "experts/cache/expert_cache.h"
#include "experts/expert_layout.h"
#include "experts/expert_store.h"
#include "experts/look_ahead.h"
#include "experts/pack/pack_set.h"
#include "experts/read_pump.h"
#include "io/stream/read_scheduler.h"

namespace motley {

struct StreamedStoreOptions {
  int64_t slots = 0;
  int floor = 0;  // slots that every layer may keep: experts per token
  ReadBackendKind io = ReadBackendKind::kAuto;
  int depth = 32;      // reads in flight per drive
  int wave_slots = 0;  // most experts of a group; 0: what the cache allows
  bool look_ahead = true;
  std::shared_ptr<const PackSet> packed;  // where the layout is of packs
  bool check = false;                     // their checksums, as parts arrive
};

// What streaming did since the store was made; subtract two for a stretch of time.
struct StreamStats {
  int64_t uses = 0;          // experts that steps wanted
  int64_t hits = 0;          // of which were in memory
  int64_t ahead_used = 0;    // of which had been read ahead, or were on their way
  int64_t ahead_wasted = 0;  // read ahead, and never used or given up
  int64_t evictions = 0;
  int64_t read_bytes = 0;
  int64_t reads = 0;
  int64_t retries = 0;
  double wait_s = 0;     // a step had nothing to compute until a read arrived
  double compute_s = 0;  // expert products
  double start_s = 0;    // looking up experts and starting reads
  double busy_s = 0;     // the busiest drive had a read in flight
  GuardStats guarded;    // of packed experts

  StreamStats operator-(const StreamStats& earlier) const;
};

class StreamedExpertStore final : public ExpertStore {
 public:
  // `files` are those that `layout` was made from, by index.
  static Result<std::unique_ptr<StreamedExpertStore>> create(Context& context, ExpertLayout layout,
                                                             std::vector<DirectFile> files,
                                                             const StreamedStoreOptions& options);
  // For tests: with a scheduler whose backend delays, reorders or fails.
  static Result<std::unique_ptr<StreamedExpertStore>> create(Context& context, ExpertLayout layout,
                                                             std::unique_ptr<ReadScheduler> reads,
                                                             const StreamedStoreOptions& options);
  ~StreamedExpertStore() override;

  Status for_each_wave(int layer, std::span<const int32_t> wanted, Wave compute,
                       Meanwhile meanwhile) override;
  void expect(int layer, std::span<const int32_t> likely, int per_row) override;
  void begin_sweep_layer(int layer) override;
  void end_sweep() override;

  int64_t slots() const { return cache_.shape().slots; }
  const CacheShape& cache_shape() const { return cache_.shape(); }
  // What was learned about the experts: uses per step, by layer and expert of cache_shape(). Set
  // before the first step, or not; empty changes nothing.
  std::vector<float> heat() const;
  void set_heat(std::span<const float> uses_per_step);
  int64_t slot_bytes() const { return layout_.slot_bytes(); }
  StreamStats stats() const;
  // "io_uring, direct", and why not when it is something slower.
  std::string reads_description() const;

 private:
  // One of a slot's two requests.
  enum Part : uint64_t { kGateUp = 0, kDown = 1 };
  struct Slot {
    int32_t layer = -1;
    int32_t expert = -1;
    int parts_waiting = 0;
    bool wanted = false;    // by the step that runs; otherwise read ahead, and pinned meanwhile
    bool is_ahead = false;  // read ahead and not used yet
    Status failure;
    ExpertWeights weights;
  };

  StreamedExpertStore(Context& context, ExpertLayout layout, std::vector<int> cache_layers,
                      const CacheShape& shape, const StreamedStoreOptions& options,
                      AlignedBuffer memory, std::unique_ptr<ReadScheduler> reads);

  Status run_group(int layer, std::span<const int32_t> wanted, Wave compute, Meanwhile meanwhile);
  void start_reads(int layer, const CachePlan& plan);
  void join_read(int32_t slot);
  void use_slot(int32_t slot);
  // Gives the expert a slot and starts reading; nullopt when there is none to be had.
  std::optional<int32_t> start_ahead(int layer, int32_t expert, ReadPriority priority);
  void read_layer_ahead(int layer, int room);
  // Drops guesses that nobody wants.
  void drop_guesses();
  // Drops what a sweep read ahead for layers before `layer` and nobody wanted; waits for what had
  // started.
  void drop_passed(int layer);
  void cancel_reads(int32_t slot);
  void read_again(int32_t slot);
  // Guesses that still read hold their slots: waits for them when `wanted` experts need those.
  void make_room(size_t wanted);
  void check_guesses(int layer, std::span<const int32_t> wanted);
  void assign(int32_t slot, int layer, int32_t expert, bool wanted);
  void submit(int32_t slot, Part part, ReadPriority priority);
  void submit_packed(int32_t slot, Part part, ReadPriority priority);
  void pin_layer(int layer, bool pinned);
  // Takes arrivals; blocks for one when `block`.
  void collect(bool block);
  void arrive(int32_t slot);
  Status check_scales(const Slot& slot);
  void run_wave(Wave compute);
  void empty_slot(int32_t slot);
  std::byte* slot_data(int32_t slot);

  Context& context_;
  ExpertLayout layout_;
  std::vector<int> cache_layers_;  // layer -> layer of the cache, -1: has no experts
  const std::shared_ptr<const PackSet> packed_;
  const bool check_;
  AlignedBuffer memory_;
  ReadPump reads_;
  ExpertCache cache_;
  const size_t most_at_once_;  // experts of a group
  std::vector<Slot> slots_;
  std::vector<std::vector<bool>> checked_;  // [layer][expert]: scales are finite
  // Of the current group.
  std::vector<int32_t> ready_;  // slots that can be computed
  int waiting_ = 0;             // slots that still read
  Status failure_;
  std::vector<int32_t> failed_;
  std::vector<ResolvedExpert> resolved_;
  std::vector<ReadRange> ranges_;
  int sweep_layer_ = -1;  // whose experts are pinned
  int ahead_ = 0;         // slots that are read and that no step wants yet
  const bool looks_ahead_;
  LookAhead look_ahead_;
  std::vector<int32_t> guessed_;  // slots that are read for a guess
  std::vector<int32_t> swept_;    // slots that a sweep reads, of the current layer and the next
  int64_t idle_since_ns_ = 0;     // 0: a step waits for reads, or none has run
  int64_t ahead_used_ = 0;
  int64_t ahead_wasted_ = 0;
  double wait_s_ = 0;
  double compute_s_ = 0;
  double start_s_ = 0;
};

}  // namespace motley
