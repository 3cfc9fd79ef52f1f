#include "io/gguf_loader.h"

#include <fmt/format.h>

#include "spec/gguf_model.h"

namespace motley {

Result<OpenedModel> open_gguf_model(Context& context, const std::string& path) {
  MOTLEY_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(context, path));
  MOTLEY_CHECK(checkpoint.gguf() != nullptr, "not a GGUF model");
  const std::string& file = checkpoint.shards().front().file().name();
  Result<GgufModelPlan> plan = plan_gguf_model(*checkpoint.gguf(), checkpoint);
  if (!plan.is_ok()) return plan.status().with_context(file);
  MOTLEY_ASSIGN_OR_RETURN(ConfigJson config,
                          ConfigJson::parse(plan->config, fmt::format("{} (metadata)", file)));
  Result<ModelSpec> spec = build_gguf_spec(config, *plan, checkpoint);
  if (!spec.is_ok()) {
    const bool named = spec.status().message().starts_with(file);
    return named ? spec.status() : spec.status().with_context(file);
  }
  MOTLEY_RETURN_IF_ERROR(checkpoint.undo_conversion(*plan));
  return OpenedModel{std::move(config), std::move(*spec), {}, {}, std::move(checkpoint)};
}

}  // namespace motley
