#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/system_memory.h"
#include "engine/engine_plan.h"
#include "engine/expert_heat.h"
#include "experts/resident_store.h"
#include "model/op_needs.h"
#include "ops/cpu/cpu_backend.h"

namespace motley {
namespace {

Result<OpTable> choose_ops(const EngineOptions& options) {
  if (options.reference) return reference_op_table();
  MOTLEY_ASSIGN_OR_RETURN(const CpuIsa isa, choose_cpu_isa(options.cpu));
  return cpu_op_table(isa, options.profile);
}

Status check_draft_support(const EngineOptions& options, const ModelSpec& spec) {
  MOTLEY_CHECK(options.drafts || options.draft_tokens == 0, "drafts come from draft layers");
  if (!options.drafts) return Status::ok();
  if (spec.drafts.empty()) {
    return unsupported(
        fmt::format("{}: the checkpoint has no draft layer, which drafts are made with",
                    options.model.string()));
  }
  for (const DraftSpec& draft : spec.drafts) {
    const bool is_linear = std::holds_alternative<GatedDeltaSpec>(draft.layer.mixer) ||
                           std::holds_alternative<ChannelDeltaSpec>(draft.layer.mixer);
    if (!is_linear || options.draft_tokens == 0) continue;
    return unsupported(
        fmt::format("{}: its draft layer is of {}, whose state cannot be stepped "
                    "back; leave out --draft",
                    options.model.string(), mixer_name(draft.layer.mixer)));
  }
  return Status::ok();
}

// Where streamed experts are read: in the checkpoint's own files, or in packs.
struct StreamSource {
  ExpertLayout layout;
  std::vector<DirectFile> files;
  std::shared_ptr<const PackSet> packed;
};

Result<StreamSource> stream_source(Context& context, const EngineOptions& options,
                                   const LoadedModel& model) {
  const PackModel pack_model{.checkpoint = &model.weights.checkpoint(),
                             .layers = model_experts(model.spec, model.weights)};
  std::vector<std::vector<ExpertWeights>> experts = pack_model.layers;
  // Drafts are often of a wider format, and would make every slot as large as theirs.
  if (!options.drafts) experts.resize(model.spec.layers.size());
  StreamSource source;
  if (!options.packed.empty()) {
    MOTLEY_ASSIGN_OR_RETURN(PackSet packed, PackSet::open(context, options.packed, pack_model));
    MOTLEY_ASSIGN_OR_RETURN(source.files, packed.open_files());
    source.layout = packed.layout(experts);
    source.packed = std::make_shared<const PackSet>(std::move(packed));
    return source;
  }
  source.layout = ExpertLayout::create(experts, pack_model.files());
  for (const MappedFile& shard : pack_model.checkpoint->shards()) {
    MOTLEY_ASSIGN_OR_RETURN(DirectFile file, DirectFile::open(context.faults, shard.file()));
    source.files.push_back(std::move(file));
  }
  return source;
}

Result<std::shared_ptr<StreamedExpertStore>> make_streamed_store(Context& context,
                                                                 const EngineOptions& options,
                                                                 const LoadedModel& model,
                                                                 const MemoryPlan& plan) {
  MOTLEY_ASSIGN_OR_RETURN(StreamSource source, stream_source(context, options, model));
  MOTLEY_ASSIGN_OR_RETURN(
      std::unique_ptr<StreamedExpertStore> store,
      StreamedExpertStore::create(context, std::move(source.layout), std::move(source.files),
                                  {.slots = plan.slots,
                                   .floor = plan.needs.experts_per_token,
                                   .io = options.io,
                                   .wave_slots = options.expert_wave_slots,
                                   .look_ahead = options.look_ahead,
                                   .packed = std::move(source.packed),
                                   .check = options.check}));
  if (!options.heat_folder.empty()) {
    const HeatName name = heat_name(model, store->cache_shape(), options.heat_folder);
    store->set_heat(read_heat(context, name, store->cache_shape()));
  }
  context.log.info("{}: experts are streamed by {}", options.model.string(),
                   store->reads_description());
  context.log.info("{:.2f} of {:.2f} GB of other weights are locked in memory",
                   static_cast<double>(model.weights.locked_bytes()) * 1e-9,
                   static_cast<double>(model.weights.copied_bytes()) * 1e-9);
  for (const std::string& line : plan.lines()) context.log.info("{}", line);
  return std::shared_ptr<StreamedExpertStore>(std::move(store));
}

}  // namespace

Engine::Engine(Context& context, EngineOptions options, Shared shared, OpTable ops)
    : context_(context),
      options_(std::move(options)),
      model_(std::move(shared.model)),
      streamed_(std::move(shared.streamed)),
      plan_(std::move(shared.plan)),
      own_experts_per_token_(shared.own_experts_per_token),
      ops_(std::move(ops)),
      topology_(Topology::single(ops_.name)) {
  if (options_.collective != nullptr) collective_ = options_.collective;
}

Result<std::unique_ptr<Engine>> Engine::load(Context& context, EngineOptions options) {
  // The op table comes first: an unknown instruction set is refused before 20 GB are read.
  MOTLEY_RETURN_IF_ERROR(choose_ops(options).status());
  MOTLEY_ASSIGN_OR_RETURN(OpenedModel opened, open_model(context, options.model.string()));
  Shared shared;
  MOTLEY_ASSIGN_OR_RETURN(shared.own_experts_per_token,
                          limit_experts(options.experts_per_token, &opened.spec));
  if (options.experts_per_token > 0) {
    context.log.warning("{}: LOSSY: {} experts a token instead of the model's {}",
                        options.model.string(), options.experts_per_token,
                        shared.own_experts_per_token);
  }
  MOTLEY_ASSIGN_OR_RETURN(shared.plan, plan_engine_memory(opened, options));
  LoadOptions load_options;
  load_options.populate = options.populate;
  load_options.stream_experts = shared.plan.streamed;
  load_options.progress = options.progress;
  MOTLEY_ASSIGN_OR_RETURN(LoadedModel model, load_model(context, std::move(opened), load_options));
  if (shared.plan.streamed) {
    MOTLEY_ASSIGN_OR_RETURN(shared.streamed,
                            make_streamed_store(context, options, model, shared.plan));
  } else if (!options.packed.empty()) {
    context.log.warning("{}: all experts fit into memory, so {} is not read",
                        options.model.string(), options.packed.front());
  }
  shared.model = std::make_shared<const LoadedModel>(std::move(model));
  return build(context, std::move(options), std::move(shared));
}

Result<std::unique_ptr<Engine>> Engine::with_numerics(EngineOptions options) const {
  if (streamed_ != nullptr && options.drafts && !options_.drafts) {
    return unsupported("the experts of draft layers are not streamed by this engine");
  }
  options.experts_per_token = options_.experts_per_token;  // part of the loaded weights' spec
  return build(context_, std::move(options), {model_, streamed_, plan_, own_experts_per_token_});
}

Result<std::unique_ptr<Engine>> Engine::build(Context& context, EngineOptions options,
                                              Shared shared) {
  MOTLEY_ASSIGN_OR_RETURN(OpTable ops, choose_ops(options));
  OpNeeds needs = op_needs(shared.model->spec);
  needs.rollback = options.draft_tokens > 0;
  MOTLEY_RETURN_IF_ERROR(check_complete(ops, needs));
  MOTLEY_RETURN_IF_ERROR(check_draft_support(options, shared.model->spec));
  std::unique_ptr<Engine> engine(
      new Engine(context, std::move(options), std::move(shared), std::move(ops)));
  MOTLEY_RETURN_IF_ERROR(engine->set_up());
  return engine;
}

Status Engine::set_up() {
  const ModelSpec& model = spec();
  MOTLEY_ASSIGN_OR_RETURN(context_length_, context_length_of(options_, model));
  MOTLEY_RETURN_IF_ERROR(set_up_state());
  if (streamed_ == nullptr) {
    resident_ = std::make_unique<ResidentExpertStore>(model_experts(model, model_->weights),
                                                      options_.expert_wave_slots);
  }
  decoder_ = std::make_unique<Decoder>(model, model_->weights, experts(),
                                       options_.delta_form.value_or(DeltaForm::kRecurrent));
  return Status::ok();
}

Status Engine::set_up_state() {
  layout_ = make_state_layout(spec(), state_format_of(options_));
  int64_t budget = options_.state_budget_bytes;
  if (budget == 0 && streamed_ != nullptr) {
    budget = std::max(plan_.needs.state_bytes, layout_.bytes_for(1));
  } else if (budget == 0) {
    // Half of what is free now; weights that are mapped count as free until they are touched.
    MOTLEY_ASSIGN_OR_RETURN(const SystemMemory memory, read_system_memory());
    budget = static_cast<int64_t>(memory.usable_now_bytes() / 2);
  }
  const int64_t one_page = layout_.bytes_for(1);
  if (one_page > budget) {
    return resource_exhausted(
        fmt::format("one sequence needs {} bytes of state, {} are available", one_page, budget));
  }
  pool_ = std::make_unique<PagePool>(context_, budget);
  return Status::ok();
}

Result<Sequence> Engine::create_sequence() {
  MOTLEY_ASSIGN_OR_RETURN(SequenceState state, SequenceState::create(layout_, *pool_));
  return Sequence(std::move(state));
}

Status Engine::save_heat() const {
  if (streamed_ == nullptr || options_.heat_folder.empty() || streamed_->stats().uses == 0) {
    return Status::ok();
  }
  const CacheShape& shape = streamed_->cache_shape();
  const HeatName name = heat_name(*model_, shape, options_.heat_folder);
  std::error_code ignored;  // what cannot be made cannot be written to either
  std::filesystem::create_directories(options_.heat_folder, ignored);
  return motley::save_heat(context_.faults, name.path,
                           {.model = spec().family,
                            .identity = name.identity,
                            .layers = shape.layers,
                            .experts = shape.experts,
                            .uses_per_step = streamed_->heat()});
}

std::string Engine::numerics_name() const {
  if (options_.reference) return "float64 reference";
  std::string name = fmt::format("{} on {}", numeric_profile_name(ops_.profile), ops_.name);
  if (options_.experts_per_token == 0) return name;
  return name + lossy_text(options_.experts_per_token, own_experts_per_token_);
}

}  // namespace motley
