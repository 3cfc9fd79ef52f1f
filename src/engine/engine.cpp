#include "engine/engine.h"

#include <fmt/format.h>

#include "base/system_memory.h"
#include "experts/resident_store.h"
#include "ops/cpu/cpu_backend.h"

namespace motley {
namespace {

Result<OpTable> choose_ops(const EngineOptions& options) {
  if (options.reference) return reference_op_table();
  MOTLEY_ASSIGN_OR_RETURN(const CpuIsa isa, choose_cpu_isa(options.cpu));
  return cpu_op_table(isa, options.profile);
}

StateFormat choose_state_format(const EngineOptions& options) {
  StateFormat format;
  format.drafts = options.drafts;
  format.chunked_delta = options.delta_form == DeltaForm::kChunked;
  if (options.reference) {
    format.kv = format.recurrent = DType::kF64;
  } else {
    const DType by_profile = options.profile == NumericProfile::kExact ? DType::kF32 : DType::kBf16;
    format.kv = options.cache_dtype.value_or(by_profile);
  }
  return format;
}

Status check_draft_support(const EngineOptions& options, const ModelSpec& spec) {
  if (!options.drafts || !spec.drafts.empty()) return Status::ok();
  return unsupported(
      fmt::format("{}: the checkpoint has no draft layers (mtp.*)", options.model.string()));
}

}  // namespace

Engine::Engine(Context& context, EngineOptions options, std::shared_ptr<const LoadedModel> model,
               OpTable ops)
    : context_(context),
      options_(std::move(options)),
      model_(std::move(model)),
      ops_(std::move(ops)),
      topology_(Topology::single(ops_.name)) {
  if (options_.collective != nullptr) collective_ = options_.collective;
}

Result<std::unique_ptr<Engine>> Engine::load(Context& context, EngineOptions options) {
  // The op table comes first: an unknown instruction set is refused before 20 GB are read.
  MOTLEY_RETURN_IF_ERROR(choose_ops(options).status());
  LoadOptions load_options;
  load_options.populate = options.populate;
  load_options.progress = options.progress;
  MOTLEY_ASSIGN_OR_RETURN(LoadedModel model, load_model(context, options.model, load_options));
  return build(context, std::move(options), std::make_shared<const LoadedModel>(std::move(model)));
}

Result<std::unique_ptr<Engine>> Engine::with_numerics(EngineOptions options) const {
  return build(context_, std::move(options), model_);
}

Result<std::unique_ptr<Engine>> Engine::build(Context& context, EngineOptions options,
                                              std::shared_ptr<const LoadedModel> model) {
  MOTLEY_ASSIGN_OR_RETURN(OpTable ops, choose_ops(options));
  MOTLEY_RETURN_IF_ERROR(check_complete(ops));
  MOTLEY_RETURN_IF_ERROR(check_draft_support(options, model->spec));
  std::unique_ptr<Engine> engine(
      new Engine(context, std::move(options), std::move(model), std::move(ops)));
  MOTLEY_RETURN_IF_ERROR(engine->set_up());
  return engine;
}

Status Engine::set_up() {
  const ModelSpec& model = spec();
  context_length_ = options_.context_length > 0 ? options_.context_length : model.context_length;
  if (context_length_ > model.context_length) {
    return invalid_argument(fmt::format("context of {} tokens wanted, the model was made for {}",
                                        context_length_, model.context_length));
  }
  layout_ = make_state_layout(model, choose_state_format(options_));
  int64_t budget = options_.state_budget_bytes;
  if (budget == 0) {
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
  experts_ = std::make_unique<ResidentExpertStore>(model_experts(model, model_->weights),
                                                   options_.expert_wave_slots);
  decoder_ = std::make_unique<Decoder>(model, model_->weights, *experts_,
                                       options_.delta_form.value_or(DeltaForm::kRecurrent));
  return Status::ok();
}

Result<Sequence> Engine::create_sequence() {
  MOTLEY_ASSIGN_OR_RETURN(SequenceState state, SequenceState::create(layout_, *pool_));
  return Sequence(std::move(state));
}

std::string Engine::numerics_name() const {
  if (options_.reference) return "float64 reference";
  return fmt::format("{} on {}", numeric_profile_name(ops_.profile), ops_.name);
}

}  // namespace motley
