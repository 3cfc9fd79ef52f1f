// Routing, expert products, combination.
#include <algorithm>
#include <cmath>

#include "ops_device/harness.h"

namespace motley::ops_device {
namespace {

void route_case(Harness& h, const MoeOps& ops) {
  const int64_t rows = h.random().integer(1, 40);
  const int64_t experts = h.random().pick({8, 60, 256, 512});
  const auto chosen = static_cast<int>(h.random().integer(1, 8) + (experts > 100 ? 2 : 0));
  Twin logits = h.random_twin({rows, experts});
  // Ties, which the total order must break by index.
  std::vector<float> start(logits.values.begin(), logits.values.end());
  for (float& value : start) value = std::round(value * 4.0f) / 4.0f;
  logits.values.assign(start.begin(), start.end());
  h.backend().upload(logits.device.data, start.data(), start.size() * sizeof(float));
  std::vector<int32_t> host_ids(static_cast<size_t>(rows * chosen), -1);
  const Shape shape{rows, chosen};
  Twin weights = h.output_twin(shape);
  const Routing on_device{h.upload_ints(host_ids, shape), weights.device};
  const Routing on_host{view_of(host_ids.data(), shape), weights.reference};
  const RoutingParams params{chosen, h.random().integer(0, 1) == 1};
  ops.route_softmax(h.device(), logits.device, params, {}, on_device);
  h.reference().moe.route_softmax(h.host(), logits.reference, params, {}, on_host);
  h.check(weights, 4e-6);
  h.check_true(h.fetch_ints(on_device.experts) == host_ids);
  // The same choice, forced, for the first row only.
  std::vector<int32_t> forced(host_ids.size(), -1);
  for (int i = 0; i < chosen; ++i) forced[static_cast<size_t>(i)] = i;
  const TensorView forced_device = h.upload_ints(forced, shape);
  ops.route_softmax(h.device(), logits.device, params, forced_device, on_device);
  h.reference().moe.route_softmax(h.host(), logits.reference, params, view_of(forced.data(), shape),
                                  on_host);
  h.check(weights, 4e-6);
  h.check_true(h.fetch_ints(on_device.experts) == host_ids);
  h.end_case();
}

void route_sigmoid_case(Harness& h, const MoeOps& ops) {
  const int64_t rows = h.random().integer(1, 40);
  SigmoidRoutingParams params;
  params.groups = static_cast<int>(h.random().pick({1, 1, 4, 8}));
  params.kept_groups = static_cast<int>(h.random().integer(1, params.groups));
  const int64_t experts = h.random().pick({64, 160, 256, 512});
  params.experts_per_token = static_cast<int>(h.random().integer(1, 8));
  params.normalise = h.random().integer(0, 1) == 1;
  params.scale = 2.5f;
  Twin logits = h.random_twin({rows, experts});
  const Twin bias = h.random_twin({experts}, 0.1);
  const std::vector<float> bias_f32(bias.values.begin(), bias.values.end());
  const Shape shape{rows, params.experts_per_token};
  std::vector<int32_t> ids(static_cast<size_t>(shape.elements()), -1);
  std::vector<int32_t> forced(ids.size(), -1);
  for (int i = 0; i < params.experts_per_token; ++i) forced[static_cast<size_t>(i)] = i;
  Twin weights = h.output_twin(shape);
  const Routing on_device{h.upload_ints(ids, shape), weights.device};
  const Routing on_host{view_of(ids.data(), shape), weights.reference};
  ops.route_sigmoid(h.device(), logits.device, bias.device, params, h.upload_ints(forced, shape),
                    on_device);
  h.reference().moe.route_sigmoid(h.host(), logits.reference, view_of(bias_f32.data(), {experts}),
                                  params, view_of(forced.data(), shape), on_host);
  h.check(weights, 4e-6);
  h.check_true(h.fetch_ints(on_device.experts) == ids);
  h.end_case();
}

struct ExpertSet {
  std::vector<TwinWeights> matrices;  // gate, up, down of each
  std::vector<ExpertWeights> device;
  std::vector<ExpertWeights> reference;
};

ExpertSet make_experts(Harness& h, const WeightKind& kind, int64_t count, int64_t hidden,
                       int64_t intermediate) {
  ExpertSet set;
  for (int64_t i = 0; i < count; ++i) {
    set.matrices.push_back(h.random_weights(kind, intermediate, hidden));
    set.matrices.push_back(h.random_weights(kind, intermediate, hidden));
    set.matrices.push_back(h.random_weights(kind, hidden, intermediate));
  }
  for (size_t i = 0; i < set.matrices.size(); i += 3) {
    set.device.push_back(
        {set.matrices[i].device, set.matrices[i + 1].device, set.matrices[i + 2].device});
    set.reference.push_back(
        {set.matrices[i].reference, set.matrices[i + 1].reference, set.matrices[i + 2].reference});
  }
  return set;
}

void experts_case(Harness& h, NumericProfile profile, const WeightKind& kind) {
  const int64_t experts = h.random().integer(2, 6);
  const auto chosen = static_cast<int>(h.random().integer(1, 2));
  const int64_t hidden = 128 * h.random().integer(1, 4);
  const int64_t intermediate = 128 * h.random().integer(1, 3);
  const RowCounts counts{h.random().integer(0, 20), h.random().integer(0, 2) * 90};
  if (counts.total() == 0) return;
  const ExpertSet set = make_experts(h, kind, experts, hidden, intermediate);
  std::vector<std::vector<int32_t>> pairs(static_cast<size_t>(experts));
  for (int32_t row = 0; row < counts.total(); ++row) {
    const int64_t first = h.random().integer(0, experts - chosen);
    for (int slot = 0; slot < chosen; ++slot) {
      pairs[static_cast<size_t>(first + slot)].push_back(row * chosen + slot);
    }
  }
  std::vector<ExpertWork> on_device;
  std::vector<ExpertWork> on_host;
  for (size_t i = 0; i < pairs.size(); ++i) {
    on_device.push_back({&set.device[i], pairs[i]});
    on_host.push_back({&set.reference[i], pairs[i]});
  }
  Twin x = h.random_twin({counts.total(), hidden}, 0.1);
  Twin out = h.output_twin({counts.total() * chosen, hidden});
  ExpertParams params{chosen, {}};
  if (h.random().integer(0, 1) == 1) params.swiglu.limit = 0.5f;  // bounds half of all values
  h.backend().table(profile).moe.experts(h.device(), x.device, counts, params, on_device,
                                         out.device);
  h.reference().moe.experts(h.host(), x.reference, counts, params, on_host, out.reference);
  h.check(out, profile == NumericProfile::kExact ? 2e-5 : 1.5e-2);
  // A wave with half of the experts leaves the other pairs as they are.
  Twin wave = h.output_twin(out.shape);
  h.backend().table(profile).moe.experts(
      h.device(), x.device, counts, params,
      std::span<const ExpertWork>(on_device).first(on_device.size() / 2), wave.device);
  const std::vector<float> all = h.fetch(out.device);
  const std::vector<float> half = h.fetch(wave.device);
  for (size_t e = 0; e < pairs.size(); ++e) {
    for (const int32_t pair : pairs[e]) {
      const auto at = static_cast<size_t>(pair * hidden);
      h.check_true(e < pairs.size() / 2 ? half[at] == all[at] : std::isnan(half[at]));
    }
  }
  h.end_case();
}

void combine_case(Harness& h, const MoeOps& ops) {
  const int64_t rows = h.random().integer(1, 20);
  const int64_t chosen = h.random().integer(1, 10);
  const int64_t dim = h.random().integer(1, 3000);
  Twin pair_out = h.random_twin({rows * chosen, dim});
  Twin weights = h.random_twin({rows, chosen});
  Twin y = h.random_twin({rows, dim});
  std::vector<int32_t> ids(static_cast<size_t>(rows * chosen), 0);
  const Shape shape{rows, chosen};
  const bool with_shared = h.random().integer(0, 1) == 1;
  ops.combine(h.device(), pair_out.device, {h.upload_ints(ids, shape), weights.device},
              with_shared ? ConstTensorView(y.device) : ConstTensorView{}, y.device);
  h.reference().moe.combine(
      h.host(), pair_out.reference, {view_of(ids.data(), shape), weights.reference},
      with_shared ? ConstTensorView(y.reference) : ConstTensorView{}, y.reference);
  h.check(y, 4e-6);
  h.end_case();
}

}  // namespace

void run_moe_cases(Harness& h, int cases) {
  const OpTable exact = h.backend().table(NumericProfile::kExact);
  h.begin("route_softmax", "8-512 experts, ties");
  for (int i = 0; i < cases; ++i) route_case(h, exact.moe);
  h.begin("route_sigmoid", "64-512 experts, groups");
  for (int i = 0; i < cases; ++i) route_sigmoid_case(h, exact.moe);
  h.begin("combine", "1-10 slots");
  for (int i = 0; i < cases; ++i) combine_case(h, exact.moe);
  for (const NumericProfile profile : {NumericProfile::kExact, NumericProfile::kFast}) {
    const std::string name = "experts " + std::string(numeric_profile_name(profile));
    for (const int bits : {2, 3, 4, 8}) {
      h.begin(name, "affine " + std::to_string(bits) + " bit");
      for (int i = 0; i < (cases + 1) / 2; ++i) {
        experts_case(h, profile, {WeightFormat::kMlxAffine, bits, h.random().pick({32, 64, 128})});
      }
    }
    h.begin(name, "BF16, F32");
    for (int i = 0; i < (cases + 1) / 2; ++i) {
      experts_case(h, profile, {h.random().pick({WeightFormat::kBf16, WeightFormat::kF32})});
    }
  }
}

}  // namespace motley::ops_device
