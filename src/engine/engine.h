// A loaded model, ready to run: weights, ops, state layout and pool. Immutable after loading.
//
// Three public nouns: Engine (this), Sequence (one timeline), Scheduler (owns the step loop).
// Ownership: everything reachable from here lives as long as the engine. The context outlives it.
// Thread rule: const use from any thread; steps run on one thread (see Scheduler).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/context.h"
#include "engine/memory_plan.h"
#include "engine/sequence.h"
#include "experts/expert_store.h"
#include "experts/streamed_store.h"
#include "io/loader.h"
#include "model/decoder.h"
#include "ops/op_table.h"
#include "spec/state_layout.h"
#include "state/page_pool.h"
#include "topology/collective.h"
#include "topology/topology.h"

namespace motley {

struct EngineOptions {
  std::filesystem::path model;
  NumericProfile profile = NumericProfile::kFast;
  std::string cpu;                      // instruction set ("avx2", ...); empty: the best available
  bool reference = false;               // run everything in the float64 reference
  std::optional<DType> cache_dtype;     // kF32 or kBf16; default by profile
  std::optional<DeltaForm> delta_form;  // default: recurrent, which is the faster one on CPUs
  int64_t context_length = 0;           // 0: the model's own
  int64_t state_budget_bytes = 0;       // 0: what memory allows
  int expert_wave_slots = 0;            // bound on experts per wave; 0: none
  bool drafts = false;                  // keep state for the draft layers
  int draft_tokens = 0;                 // most drafts that a step verifies; needs drafts
  bool populate = true;                 // touch all weights while loading
  // Memory for everything; not set: what is free. A model whose experts do not fit streams them.
  MemorySize memory;
  MemorySize expert_cache;  // the streamed experts' share, set by hand
  ReadBackendKind io = ReadBackendKind::kAuto;
  std::vector<std::string> packed;  // packs that streamed experts are read from; none: the model
  bool check = false;               // the checksums of packed experts, as they arrive
  bool look_ahead = true;           // of streamed experts, in decode
  std::string heat_folder;          // where the heat of streamed experts is kept; empty: it is not
  int experts_per_token = 0;  // fewer than the model's own, which is another model; 0: its own
  int64_t step_rows = 512;    // most rows of a step, for the plan of memory
  Collective* collective = nullptr;  // of the ranks that share the model; null: one rank
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

class Engine {
 public:
  // Errors name the file and the thing; nothing is allocated for what would not fit.
  static Result<std::unique_ptr<Engine>> load(Context& context, EngineOptions options);
  // A second engine over the same loaded weights with other numerics (verification).
  Result<std::unique_ptr<Engine>> with_numerics(EngineOptions options) const;

  Result<Sequence> create_sequence();

  Context& context() const { return context_; }
  const EngineOptions& options() const { return options_; }
  const LoadedModel& model() const { return *model_; }
  const ModelSpec& spec() const { return model_->spec; }
  const OpTable& ops() const { return ops_; }
  const Topology& topology() const { return topology_; }
  const StateLayout& layout() const { return layout_; }
  const Decoder& decoder() const { return *decoder_; }
  PagePool& pool() { return *pool_; }
  Collective& collective() { return *collective_; }
  int64_t context_length() const { return context_length_; }
  const MemoryPlan& memory_plan() const { return plan_; }
  ExpertStore& experts() {
    return streamed_ != nullptr ? static_cast<ExpertStore&>(*streamed_) : *resident_;
  }
  // The store that streams experts; null when they are all in memory.
  const StreamedExpertStore* streamed_experts() const { return streamed_.get(); }
  // Keeps what was learned about streamed experts since loading; nothing to do without heat_folder.
  Status save_heat() const;
  // "exact on cpu/avx512".
  std::string numerics_name() const;

 private:
  // What engines of different numerics have in common.
  struct Shared {
    std::shared_ptr<const LoadedModel> model;
    std::shared_ptr<StreamedExpertStore> streamed;  // null: experts are in memory
    MemoryPlan plan;
    int own_experts_per_token = 0;
  };

  Engine(Context& context, EngineOptions options, Shared shared, OpTable ops);
  static Result<std::unique_ptr<Engine>> build(Context& context, EngineOptions options,
                                               Shared shared);
  Status set_up();
  Status set_up_state();

  Context& context_;
  EngineOptions options_;
  std::shared_ptr<const LoadedModel> model_;  // shared by engines of different numerics
  std::shared_ptr<StreamedExpertStore> streamed_;
  MemoryPlan plan_;
  int own_experts_per_token_;  // as trained; 0 without experts
  OpTable ops_;
  Topology topology_;
  StateLayout layout_;
  int64_t context_length_ = 0;
  SingleCollective single_;
  Collective* collective_ = &single_;
  std::unique_ptr<ExpertStore> resident_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<PagePool> pool_;
};

}  // namespace motley
