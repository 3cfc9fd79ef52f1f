#include "engine/verify/expected_shapes.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/verify/expected_names.h"
#include "engine/verify/label_check.h"

namespace motley {
namespace {

using Floats = ExpectedTensors::Floats;
using Ints = ExpectedTensors::Ints;

Status refuse(const std::string& tensor, const std::string& why) {
  return invalid_argument(fmt::format("expected outputs: tensor {} {}", tensor, why));
}

class ShapeCheck {
 public:
  ShapeCheck(const ExpectedTensors& expected, std::string label, const ModelSpec& spec,
             int64_t context_length)
      : expected_(expected),
        label_(std::move(label)),
        spec_(spec),
        context_length_(context_length),
        moe_(moe_layers(spec)),
        indexers_(indexer_layers(spec)),
        prompt_(std::ssize(expected.ints(label_ + ".ids")->values)) {}

  Status run() const {
    for (const std::string& name : expected_.names()) {
      const std::optional<ExpectedName> parts = parse_expected_name(name);
      if (!parts.has_value() || parts->label != label_) continue;
      MOTLEY_RETURN_IF_ERROR(holds_integers(parts->kind)
                                 ? check_ints(name, *parts, *expected_.ints(name))
                                 : check_floats(name, *parts, *expected_.floats(name)));
    }
    return check_length();
  }

 private:
  Status check_ints(const std::string& name, const ExpectedName& parts, const Ints& ints) const {
    if (parts.kind == ExpectedKind::kRouterExperts) return check_experts(name, parts.index, ints);
    if (parts.kind == ExpectedKind::kIndexerSelected) return check_keys(name, parts.index, ints);
    if (ints.shape.size() != 1) return wrong_shape(name);
    for (const int32_t token : ints.values) {
      if (token < 0 || token >= spec_.vocab_size) {
        return refuse(
            name, fmt::format("names token {}, the vocabulary has {}", token, spec_.vocab_size));
      }
    }
    if (parts.kind == ExpectedKind::kArgmax && std::ssize(ints.values) != prompt_) {
      return refuse(name, "must have one entry per token");
    }
    if (parts.kind == ExpectedKind::kDraftToken && ints.values.size() != 1) {
      return refuse(name, "must be one token");
    }
    return Status::ok();
  }

  Status check_experts(const std::string& name, size_t index, const Ints& ints) const {
    if (index >= moe_.size()) return refuse(name, "is of a layer with experts that is not there");
    const auto& moe =
        std::get<MoeSpec>(spec_.layers[static_cast<size_t>(moe_[index])].feed_forward);
    const auto width = static_cast<size_t>(moe.experts_per_token);
    if (ints.shape.size() != 2 || !rows_fit(ints.shape, moe.experts_per_token)) {
      return wrong_shape(name);
    }
    for (size_t i = 0; i < ints.values.size(); ++i) {
      const int32_t expert = ints.values[i];
      if (expert < 0 || expert >= moe.experts) {
        return refuse(name, fmt::format("names expert {}, the layer has {}", expert, moe.experts));
      }
      if (i % width != 0 && expert <= ints.values[i - 1]) {
        return refuse(name, fmt::format("row {}: experts must ascend", i / width));
      }
    }
    return Status::ok();
  }

  // Positions of the prompt, ascending, -1 behind the last.
  Status check_keys(const std::string& name, size_t index, const Ints& ints) const {
    if (index >= indexers_.size()) return refuse(name, "is of an indexer that is not there");
    const auto& latent =
        std::get<LatentAttentionSpec>(spec_.layers[static_cast<size_t>(indexers_[index])].mixer);
    const int64_t width = ints.shape.back();
    if (ints.shape.size() != 2 || width > latent.indexer.width() || !rows_fit(ints.shape, width)) {
      return wrong_shape(name);
    }
    for (size_t i = 0; i < ints.values.size(); ++i) {
      const int32_t key = ints.values[i];
      if (key < -1 || key >= prompt_) {
        return refuse(name, fmt::format("names position {}, the prompt has {}", key, prompt_));
      }
      const bool is_first = i % static_cast<size_t>(width) == 0;
      if (!is_first && key >= 0 && key <= ints.values[i - 1]) {
        return refuse(name,
                      fmt::format("row {}: positions must ascend", i / static_cast<size_t>(width)));
      }
      if (!is_first && key >= 0 && ints.values[i - 1] < 0) {
        return refuse(name,
                      fmt::format("row {}: a position follows -1", i / static_cast<size_t>(width)));
      }
    }
    return Status::ok();
  }

  Status check_floats(const std::string& name, const ExpectedName& parts,
                      const Floats& floats) const {
    const std::vector<int64_t>& shape = floats.shape;
    const bool draft =
        parts.kind == ExpectedKind::kDraftLogits || parts.kind == ExpectedKind::kDraftChainLogits;
    if (draft && spec_.drafts.empty())
      return refuse(name, "needs draft layers, the model has none");
    switch (parts.kind) {
      case ExpectedKind::kLayerOut:
        if (parts.index >= spec_.layers.size()) return refuse(name, "is of no layer of the model");
        return layer_rows_fit(shape) ? Status::ok() : wrong_shape(name);
      case ExpectedKind::kDraftChainLogits:
        return shape.size() == 2 && shape[1] == spec_.vocab_size ? Status::ok() : wrong_shape(name);
      case ExpectedKind::kLosses:
        return std::ssize(floats.values) == prompt_ - 1
                   ? Status::ok()
                   : refuse(name, "must have one entry per token but the first");
      case ExpectedKind::kGreedyMargin:
        return one_per_row(name, floats, expected_.ints(label_ + ".greedy"));
      case ExpectedKind::kArgmaxMargin:
        return one_per_row(name, floats, expected_.ints(label_ + ".argmax"));
      case ExpectedKind::kRouterGap:
        return gaps_fit(name, floats,
                        expected_.ints(fmt::format("{}.router.{}.experts", label_, parts.index)));
      case ExpectedKind::kIndexerGap:
        return gaps_fit(name, floats,
                        expected_.ints(fmt::format("{}.indexer.{}.selected", label_, parts.index)));
      default:
        return rows_fit(shape, spec_.vocab_size) ? Status::ok() : wrong_shape(name);
    }
  }

  // The file's sizes are known to be those of its tensors, so none of these sums overflows.
  Status check_length() const {
    int64_t tokens = 0;
    if (const Ints* greedy = expected_.ints(label_ + ".greedy"))
      tokens = std::ssize(greedy->values);
    if (const Floats* chain = expected_.floats(label_ + ".mtp.chain_logits")) {
      tokens = std::max(tokens, chain->shape[0]);
    }
    if (prompt_ + tokens <= context_length_) return Status::ok();
    return refuse(label_ + ".ids", fmt::format("has {} tokens and {} follow, the context holds {}",
                                               prompt_, tokens, context_length_));
  }

  bool rows_fit(const std::vector<int64_t>& shape, int64_t width) const {
    const int64_t rows = shape.size() == 2 ? shape[0] : 1;
    return !shape.empty() && shape.size() <= 2 && shape.back() == width && rows <= prompt_;
  }

  // [rows, hidden], or [rows, streams, hidden].
  bool layer_rows_fit(std::vector<int64_t> shape) const {
    if (spec_.residual.streams > 1) {
      if (shape.size() != 3 || shape[1] != spec_.residual.streams) return false;
      shape.erase(shape.begin() + 1);
    }
    return rows_fit(shape, spec_.hidden_size);
  }

  static Status wrong_shape(const std::string& name) {
    return refuse(name, "has a shape that this model cannot give");
  }

  // A margin says nothing without the choices that it belongs to.
  static Status one_per_row(const std::string& name, const Floats& margins, const Ints* choices) {
    if (choices != nullptr && std::ssize(margins.values) == choices->shape[0]) return Status::ok();
    return refuse(name, "must have one entry for each row of the choices that it belongs to");
  }

  // Gaps are those of the prompt's last rows, like the choices, but may reach further back: rows
  // whose choice was left out of the file decide what later ones depend on.
  Status gaps_fit(const std::string& name, const Floats& gaps, const Ints* choices) const {
    const auto rows = std::ssize(gaps.values);
    if (choices != nullptr && rows >= choices->shape[0] && rows <= prompt_) return Status::ok();
    return refuse(name, fmt::format("has {} entries, the model's prompt has {} rows and the "
                                    "choices {}",
                                    rows, prompt_, choices == nullptr ? 0 : choices->shape[0]));
  }

  const ExpectedTensors& expected_;
  const std::string label_;
  const ModelSpec& spec_;
  const int64_t context_length_;
  const std::vector<int> moe_;
  const std::vector<int> indexers_;
  const int64_t prompt_;
};

}  // namespace

Status check_expected_shapes(const ExpectedTensors& expected, const std::string& label,
                             const ModelSpec& spec, int64_t context_length) {
  return ShapeCheck(expected, label, spec, context_length).run();
}

}  // namespace motley
