#include "engine/plan/model_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/cpu_topology.h"
#include "base/system_memory.h"
#include "base/thread_pool.h"
#include "base/version.h"
#include "engine/engine_plan.h"
#include "engine/plan/compute_probe.h"
#include "engine/plan/rate_cache.h"
#include "experts/expert_layout.h"
#include "experts/pack/pack_set.h"
#include "io/kept_results.h"
#include "model/decoder.h"
#include "ops/cpu/cpu_backend.h"

namespace motley {
namespace {

constexpr int64_t kNearTokens = 512;
constexpr int64_t kFarTokens = 8192;
constexpr int64_t kMostChunk = 512;  // longer ones are timed as several of this
constexpr int64_t kLeastProbeBytes = int64_t{16} << 20;

class Planner {
 public:
  Planner(Context& context, const ModelPlanOptions& options)
      : context_(context), options_(options) {}

  Result<ModelPlan> run() {
    const EngineOptions& engine = options_.engine;
    MOTLEY_ASSIGN_OR_RETURN(const CpuIsa isa, choose_cpu_isa(engine.cpu));
    const OpTable ops = cpu_op_table(isa, engine.profile);
    MOTLEY_ASSIGN_OR_RETURN(OpenedModel opened, open_model(context_, engine.model.string()));
    MOTLEY_ASSIGN_OR_RETURN(const int own, limit_experts(engine.experts_per_token, &opened.spec));
    MOTLEY_RETURN_IF_ERROR(describe(opened, ops));
    if (engine.experts_per_token > 0) plan_.numerics += lossy_text(engine.experts_per_token, own);
    if (plan_.memory.streamed) {
      MOTLEY_ASSIGN_OR_RETURN(opened, probe_drive_of(std::move(opened)));
    }
    const Status measured = measure(std::move(opened), ops);
    if (!measured.is_ok()) note("speed is not predicted: " + measured.message());
    predict();
    return std::move(plan_);
  }

 private:
  void say(const std::string& stage) const {
    if (options_.progress) options_.progress(stage);
  }
  void note(std::string text) { plan_.notes.push_back(std::move(text)); }

  Status describe(const OpenedModel& opened, const OpTable& ops) {
    const EngineOptions& engine = options_.engine;
    MOTLEY_ASSIGN_OR_RETURN(plan_.memory, plan_engine_memory(opened, engine));
    MOTLEY_ASSIGN_OR_RETURN(most_context_, context_length_of(engine, opened.spec));
    MOTLEY_ASSIGN_OR_RETURN(const Placement placement,
                            place_model(opened, {.stream_experts = true}));
    StateFormat format = state_format_of(engine);
    format.drafts = false;
    plan_.kinds = layer_kinds(opened.spec, placement, make_state_layout(opened.spec, format));
    plan_.model = engine.model.string();
    plan_.processor = cpu_model_name();
    plan_.numerics = fmt::format("{} on {}", numeric_profile_name(ops.profile), ops.name);
    plan_.threads = context_.threads.size();
    plan_.context = engine.context_length;
    const MemoryNeeds& needs = plan_.memory.needs;
    plan_.floor_bytes = needs.fixed_bytes() + needs.floor_slots() * needs.slot_bytes;
    if (options_.heat.has_value()) {
      int experts = 0;
      for (const LayerKind& kind : plan_.kinds) experts = std::max(experts, kind.experts);
      MOTLEY_RETURN_IF_ERROR(
          check_heat_is_of(*options_.heat, needs.expert_layers, experts, options_.heat->identity)
              .with_context(options_.heat_file));
    }
    plan_.decode_context = std::min(kNearTokens, most_context_ / 2);
    plan_.hit_share = hit_share(plan_.memory);
    if (!plan_.memory.streamed) {
      plan_.hit_source = "all experts are in memory";
    } else if (options_.heat.has_value()) {
      plan_.hit_source = "routing as learned in " + options_.heat_file;
    } else {
      plan_.hit_source = "even routing: the share of experts in memory";
    }
    return Status::ok();
  }

  double hit_share(const MemoryPlan& memory) const {
    return options_.heat.has_value() ? heat_hit_share(memory, *options_.heat)
                                     : even_hit_share(memory);
  }

  // Reads records as a run would: the parts of an expert of the first layer that has some, in the
  // model's own files or in the first drive's packs.
  Result<OpenedModel> probe_drive_of(OpenedModel opened) {
    say("drive");
    ConfigJson config = std::move(opened.config);
    ModelSpec spec = opened.spec;
    QuantizationConfig quantization = opened.quantization;
    MOTLEY_ASSIGN_OR_RETURN(LoadedWeights places, locate_experts(std::move(opened)));
    const PackModel model{.checkpoint = &places.checkpoint(),
                          .layers = model_experts(spec, places)};
    if (options_.engine.packed.empty()) {
      std::vector<const File*> files;
      for (const MappedFile& shard : places.checkpoint().shards()) files.push_back(&shard.file());
      probe_records(ExpertLayout::create(model.layers, model.files()), files);
    } else {
      MOTLEY_RETURN_IF_ERROR(probe_packs(model));
    }
    return OpenedModel{.config = std::move(config),
                       .spec = std::move(spec),
                       .quantization = std::move(quantization),
                       .generation = {},
                       .checkpoint = std::move(places).take_checkpoint()};
  }

  Status probe_packs(const PackModel& model) {
    MOTLEY_ASSIGN_OR_RETURN(const PackSet packs,
                            PackSet::open(context_, options_.engine.packed, model));
    std::vector<File> opened;
    for (const std::string& path : packs.file_paths()) {
      MOTLEY_ASSIGN_OR_RETURN(File file, File::open(context_.faults, path));
      opened.push_back(std::move(file));
    }
    std::vector<const File*> files;
    for (const File& file : opened) files.push_back(&file);
    probe_records(packs.layout(model.layers), files);
    if (packs.directory_count() > 1) {
      note(fmt::format("{} packs: predicted with the drive of the first alone",
                       packs.directory_count()));
    }
    return Status::ok();
  }

  void probe_records(const ExpertLayout& layout, std::span<const File* const> files) {
    DriveProbeOptions probe{.record_bytes = 0,
                            .seconds_per_depth = options_.drive_seconds_per_depth,
                            .backend = options_.engine.io};
    for (int layer = 0; layer < layout.layers() && probe.part_bytes.empty(); ++layer) {
      if (layout.experts(layer) == 0) continue;
      const ExpertReads reads = layout.reads(layer, 0);
      for (const ExpertRead& read : reads.gate_up) probe.part_bytes.push_back(read.bytes);
      for (const ExpertRead& read : reads.down) probe.part_bytes.push_back(read.bytes);
    }
    for (const int64_t part : probe.part_bytes) probe.record_bytes += part;
    plan_.parts = std::ssize(probe.part_bytes);
    const auto probed = probe_drive_cached(context_.clock, context_.faults, files, probe,
                                           options_.drive_cache, max_age_s());
    if (probed.is_ok()) {
      plan_.drive = probed->probe;
      plan_.drive_cached = probed->was_cached;
      if (!probed->note.empty()) note(probed->note);
    } else {
      note("speed is not predicted: " + probed.status().message());
    }
  }

  int64_t max_age_s() const { return options_.probe_again ? -1 : options_.max_age_s; }

  ComputeProbeOptions compute_options() const {
    ComputeProbeOptions probe;
    probe.state = state_format_of(options_.engine);
    probe.state.drafts = false;
    probe.delta = options_.engine.delta_form.value_or(DeltaForm::kRecurrent);
    probe.near_tokens = plan_.decode_context;
    probe.far_tokens = std::max(probe.near_tokens, std::min(kFarTokens, most_context_ - 1));
    probe.chunk_tokens =
        std::min({std::max<int64_t>(options_.engine.step_rows, 1), kMostChunk, most_context_});
    probe.fits_caches = fits_caches();
    probe.progress = [this](const std::string& stage) { say(stage); };
    return probe;
  }

  // The last cache is shared with whatever else runs.
  bool fits_caches() const {
    const MemoryNeeds& needs = plan_.memory.needs;
    return needs.dense_bytes + needs.expert_bytes < sysconf(_SC_LEVEL3_CACHE_SIZE) / 8;
  }

  std::string key_of(const OpenedModel& opened, const ComputeProbeOptions& probe) const {
    std::string shapes = fmt::format("hidden {} vocabulary {} cache {} delta {} at {} {} chunk {}",
                                     opened.spec.hidden_size, opened.spec.vocab_size,
                                     dtype_name(probe.state.kv), static_cast<int>(probe.delta),
                                     probe.near_tokens, probe.far_tokens, probe.chunk_tokens);
    for (const LayerKind& kind : plan_.kinds) shapes += "\n" + kind.signature;
    const BuildInfo build = build_info();
    return rate_key({.processor = plan_.processor,
                     .threads = plan_.threads,
                     .numerics = plan_.numerics,
                     .build = fmt::format("{} {}", build.revision, build.build_type),
                     .shapes = std::move(shapes)});
  }

  Status measure(OpenedModel opened, const OpTable& ops) {
    ComputeProbeOptions probe = compute_options();
    MOTLEY_ASSIGN_OR_RETURN(const SystemMemory memory, read_system_memory());
    probe.most_bytes = std::clamp(static_cast<int64_t>(memory.usable_now_bytes()) / 4,
                                  kLeastProbeBytes, options_.most_probe_bytes);
    const std::string key = key_of(opened, probe);
    auto loaded = load_model_rates(context_.faults, options_.rate_cache);
    if (!loaded.is_ok()) note("cache of rates ignored: " + loaded.status().message());
    std::vector<StoredRates> known;
    if (loaded.is_ok()) known = std::move(*loaded);
    if (const auto found = find_model_rates(known, key, max_age_s());
        found && found->rates.kinds.size() == plan_.kinds.size()) {
      plan_.rates = found->rates;
      plan_.rates_cached = true;
      return Status::ok();
    }
    MOTLEY_ASSIGN_OR_RETURN(const ModelRates rates, measure_model_rates(context_, std::move(opened),
                                                                        plan_.kinds, ops, probe));
    plan_.rates = rates;
    if (options_.rate_cache.empty()) return Status::ok();
    const Status stored = store_model_rates(context_.faults, options_.rate_cache, std::move(known),
                                            {key, unix_now_s(), rates});
    if (!stored.is_ok()) note("cache of rates not written: " + stored.message());
    return Status::ok();
  }

  void predict() {
    if (!plan_.rates.has_value()) return;
    if (plan_.memory.streamed && !plan_.drive.has_value()) return;
    const PredictionInput input{.kinds = plan_.kinds,
                                .rates = *plan_.rates,
                                .plan = plan_.memory,
                                .drive = plan_.drive,
                                .hit_share = plan_.hit_share};
    plan_.decode = predict_decode(input, plan_.decode_context);
    for (const int64_t prompt : options_.prompts) {
      if (prompt > most_context_) continue;
      plan_.prefill.push_back(
          predict_prefill(input, prompt, std::max<int64_t>(options_.engine.step_rows, 1)));
    }
    plan_.advice = advise(input, plan_.decode_context,
                          [this](const MemoryPlan& memory) { return hit_share(memory); });
  }

  Context& context_;
  const ModelPlanOptions& options_;
  ModelPlan plan_;
  int64_t most_context_ = 0;
};

}  // namespace

Result<ModelPlan> plan_model(Context& context, const ModelPlanOptions& options) {
  return Planner(context, options).run();
}

}  // namespace motley
