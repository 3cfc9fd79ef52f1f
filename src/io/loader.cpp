#include "io/loader.h"

#include <fmt/format.h>

#include <atomic>

#include "base/log.h"
#include "base/thread_pool.h"
#include "io/block_float_modules.h"
#include "io/finite_scan.h"
#include "io/gguf_files.h"
#include "io/gguf_loader.h"
#include "io/gguf_modules.h"
#include "io/module_table.h"
#include "io/page_cache.h"
#include "io/weight_assembler.h"
#include "spec/family_registry.h"
#include "spec/gguf_model.h"

namespace motley {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

Result<ConfigJson> read_json(const ModelDirectory& directory, std::string_view name) {
  MOTLEY_ASSIGN_OR_RETURN(const std::string text, directory.read_text(name, kMaxConfigBytes));
  return ConfigJson::parse(text, fmt::format("{}/{}", directory.path(), name));
}

Status check_scales(const Checkpoint& checkpoint, const CheckpointTensor& tensor,
                    const Module& module) {
  if (module.is_block_float()) return check_block_scales(checkpoint, tensor, module.matrix.block);
  if (all_finite(tensor.bytes, tensor.entry.dtype)) return Status::ok();
  return corrupt(fmt::format("{}: tensor '{}' holds NaN or infinity",
                             checkpoint.shard(tensor).file().name(), tensor.name));
}

// Scales and biases of every quantised module: one NaN there spreads through a batch.
Status scan_scales(Context& context, const Checkpoint& checkpoint, const ModuleTable& table,
                   bool skip_experts) {
  std::vector<std::pair<const CheckpointTensor*, const Module*>> tensors;
  for (const Module& module : table.modules()) {
    if (skip_experts && module.role == TensorRole::kExperts) continue;
    // The scale of a whole tensor was read with the module.
    const size_t end = module.is_block_float() ? 2 : module.tensors.size();
    for (size_t i = 1; i < end; ++i) tensors.emplace_back(module.tensors[i], &module);
  }
  const auto count = static_cast<int64_t>(tensors.size());
  std::atomic<int64_t> first_bad{count};
  context.threads.parallel_for(count, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& [tensor, module] = tensors[static_cast<size_t>(i)];
      if (check_scales(checkpoint, *tensor, *module).is_ok()) continue;
      int64_t seen = first_bad.load();
      while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
      }
    }
  });
  if (first_bad.load() == count) return Status::ok();
  const auto& [tensor, module] = tensors[static_cast<size_t>(first_bad.load())];
  return check_scales(checkpoint, *tensor, *module);
}

// An id that no token has never ends an answer.
Status check_eos_tokens(const std::vector<int32_t>& tokens, int64_t vocab_size,
                        const std::string& file) {
  for (const int32_t id : tokens) {
    if (id < vocab_size) continue;
    return corrupt(fmt::format("{}: eos_token_id {} is beyond the vocabulary of {} tokens", file,
                               id, vocab_size));
  }
  return Status::ok();
}

}  // namespace

const LoadedWeights::Slot& LoadedWeights::slot(TensorHandle handle, TensorRole role) const {
  MOTLEY_CHECK(handle.is_set() && static_cast<size_t>(handle.index) < slots_.size(),
               "no such tensor");
  const Slot& result = slots_[static_cast<size_t>(handle.index)];
  MOTLEY_CHECK(result.role == role, "tensor has another role");
  return result;
}

const WeightMatrix& LoadedWeights::matrix(TensorHandle handle) const {
  return slot(handle, TensorRole::kMatrix).matrices.front();
}

ConstTensorView LoadedWeights::vector(TensorHandle handle) const {
  return slot(handle, TensorRole::kVector).values;
}

ConstTensorView LoadedWeights::table(TensorHandle handle) const {
  return slot(handle, TensorRole::kTable).values;
}

ConstTensorView LoadedWeights::convolution(TensorHandle handle) const {
  return slot(handle, TensorRole::kConvolution).values;
}

const WeightMatrix& LoadedWeights::expert(TensorHandle handle, int expert) const {
  const Slot& experts = slot(handle, TensorRole::kExperts);
  MOTLEY_CHECK(expert >= 0 && static_cast<size_t>(expert) < experts.matrices.size(),
               "no such expert");
  return experts.matrices[static_cast<size_t>(expert)];
}

Status check_model_family(Context& context, const std::string& path) {
  MOTLEY_ASSIGN_OR_RETURN(const std::optional<GgufMetadata> gguf,
                          read_gguf_metadata(context.faults, path));
  if (gguf) return check_gguf_architecture(*gguf).with_context(path);
  MOTLEY_ASSIGN_OR_RETURN(const ModelDirectory directory,
                          ModelDirectory::open(context.faults, path));
  MOTLEY_ASSIGN_OR_RETURN(const ConfigJson config, read_json(directory, "config.json"));
  return check_family(config);
}

Result<OpenedModel> open_model(Context& context, const std::string& path) {
  MOTLEY_ASSIGN_OR_RETURN(const std::optional<GgufFiles> gguf,
                          find_gguf_files(context.faults, path));
  if (gguf) return open_gguf_model(context, path);
  MOTLEY_ASSIGN_OR_RETURN(const ModelDirectory directory,
                          ModelDirectory::open(context.faults, path));
  MOTLEY_ASSIGN_OR_RETURN(ConfigJson config, read_json(directory, "config.json"));
  MOTLEY_ASSIGN_OR_RETURN(QuantizationConfig quantization, read_quantization_config(config));
  GenerationConfig generation;
  constexpr std::string_view kGeneration = "generation_config.json";
  if (directory.contains(kGeneration)) {
    MOTLEY_ASSIGN_OR_RETURN(const ConfigJson file, read_json(directory, kGeneration));
    MOTLEY_ASSIGN_OR_RETURN(generation, read_generation_config(file));
  }
  MOTLEY_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(context, path));
  Result<ModelSpec> spec = build_model_spec(config, checkpoint);
  if (!spec.is_ok()) {
    // Errors of config.json name it; those about tensors do not know the directory.
    const bool named = spec.status().message().starts_with(path);
    return named ? spec.status() : spec.status().with_context(path);
  }
  MOTLEY_RETURN_IF_ERROR(
      check_eos_tokens(spec->eos_tokens, spec->vocab_size, path + "/config.json"));
  MOTLEY_RETURN_IF_ERROR(check_eos_tokens(generation.eos_tokens, spec->vocab_size,
                                          fmt::format("{}/{}", path, kGeneration)));
  add_eos_tokens(generation.eos_tokens, &spec->eos_tokens);
  return OpenedModel{std::move(config), std::move(*spec), std::move(quantization),
                     std::move(generation), std::move(checkpoint)};
}

Result<Placement> place_model(const OpenedModel& model, const LoadOptions& options) {
  MOTLEY_ASSIGN_OR_RETURN(const ModuleTable table,
                          ModuleTable::create(model.checkpoint, model.spec, model.quantization));
  return WeightAssembler(model.spec, table, options.stream_experts).plan();
}

Result<LoadedWeights> locate_experts(OpenedModel model) {
  MOTLEY_ASSIGN_OR_RETURN(const ModuleTable table,
                          ModuleTable::create(model.checkpoint, model.spec, model.quantization));
  WeightAssembler assembler(model.spec, table, /*stream_experts=*/true);
  MOTLEY_RETURN_IF_ERROR(assembler.plan().status());
  return assembler.locate_experts(std::move(model.checkpoint));
}

Result<LoadedModel> load_model(Context& context, const std::string& path,
                               const LoadOptions& options) {
  MOTLEY_ASSIGN_OR_RETURN(OpenedModel model, open_model(context, path));
  return load_model(context, std::move(model), options);
}

Result<LoadedModel> load_model(Context& context, OpenedModel model, const LoadOptions& options) {
  MOTLEY_ASSIGN_OR_RETURN(const ModuleTable table,
                          ModuleTable::create(model.checkpoint, model.spec, model.quantization));
  WeightAssembler assembler(model.spec, table, options.stream_experts);
  MOTLEY_ASSIGN_OR_RETURN(Placement placement, assembler.plan());
  if (options.experts_only) {
    assembler.leave_copies();
    MOTLEY_ASSIGN_OR_RETURN(LoadedWeights weights,
                            assembler.assemble(context, std::move(model.checkpoint)));
    return LoadedModel{std::move(model.spec), std::move(weights), std::move(placement),
                       std::move(model.quantization), std::move(model.generation)};
  }
  if (options.populate && !options.stream_experts) {
    const std::vector<std::span<const std::byte>> ranges = assembler.mapped_ranges();
    MOTLEY_RETURN_IF_ERROR(populate(context, ranges, options.progress));
    MOTLEY_ASSIGN_OR_RETURN(const int64_t read_again,
                            widen_page_cache(context, model.checkpoint.shards(), ranges,
                                             {.progress = options.progress}));
    if (read_again > 0) {
      context.log.info("{}: {:.1f} GB read again into pages of 2 MiB; the next start need not",
                       model.checkpoint.directory().path(), static_cast<double>(read_again) / 1e9);
    }
  }
  MOTLEY_RETURN_IF_ERROR(scan_scales(context, model.checkpoint, table, options.stream_experts));
  MOTLEY_RETURN_IF_ERROR(
      check_gguf_scales(context, model.checkpoint, table, options.stream_experts));
  const std::vector<std::span<const std::byte>> copied = assembler.copied_ranges();
  MOTLEY_ASSIGN_OR_RETURN(LoadedWeights weights,
                          assembler.assemble(context, std::move(model.checkpoint)));
  release_pages(copied);
  if (options.stream_experts) drop_page_cache(weights.checkpoint().shards(), copied);
  MOTLEY_RETURN_IF_ERROR(weights.checkpoint().check_unchanged());
  return LoadedModel{std::move(model.spec), std::move(weights), std::move(placement),
                     std::move(model.quantization), std::move(model.generation)};
}

}  // namespace motley
