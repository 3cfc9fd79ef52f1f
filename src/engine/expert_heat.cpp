#include "engine/expert_heat.h"

#include <fmt/format.h>

#include <variant>

#include "base/fault_points.h"
#include "base/hash.h"
#include "base/log.h"

namespace motley {
namespace {

uint64_t hash_of(const WeightMatrix& matrix, uint64_t before) {
  const auto rows = static_cast<size_t>(matrix.rows);
  const auto row_bytes = static_cast<size_t>(matrix.codes.row_bytes);
  const uint64_t own = hash_bytes({matrix.codes.data, rows * row_bytes});
  return hash_bytes(fmt::format("{:016x} {} {} {:016x}", before, rows, row_bytes, own));
}

}  // namespace

HeatName heat_name(const LoadedModel& model, const CacheShape& shape, const std::string& folder) {
  std::vector<const MoeSpec*> blocks;
  for (const LayerSpec& layer : model.spec.layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward)) blocks.push_back(moe);
  }
  MOTLEY_CHECK(!blocks.empty(), "only models with experts have heat");
  const uint64_t first = hash_of(model.weights.matrix(blocks.front()->router), 0);
  const uint64_t routers = hash_of(model.weights.matrix(blocks.back()->router), first);
  const uint64_t identity =
      hash_bytes(fmt::format("{:016x} {} {}", routers, shape.layers, shape.experts));
  return {fmt::format("{}/heat-{:016x}.bin", folder, identity), identity};
}

std::vector<float> read_heat(Context& context, const HeatName& name, const CacheShape& shape) {
  Result<HeatTable> heat = load_heat(context.faults, name.path);
  Status status = heat.status();
  if (status.is_ok()) status = check_heat_is_of(*heat, shape.layers, shape.experts, name.identity);
  if (status.is_ok()) return std::move(heat->uses_per_step);
  if (status.code() != StatusCode::kNotFound) {
    context.log.warning("{}; starting without", status.message());
  }
  return {};
}

}  // namespace motley
