// A small checkpoint on disk and its experts, for the tests of packs. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/owned_context.h"
#include "experts/pack/pack_model.h"
#include "experts/pack/pack_writer.h"
#include "experts/record_shape.h"
#include "io/loader.h"
#include "support/model_files.h"
#include "support/test_files.h"

namespace motley {

// Every layout that the loader knows.
inline std::vector<TestModelOptions> pack_test_layouts() {
  const MlxAffineFormat four_bits{4, 32};
  return {{.separate = true},
          {.separate = false},
          {.mlx = true},
          {.mlx = true, .quantized = four_bits},
          {.next = true, .mlx = true, .draft = false, .quantized = four_bits}};
}

class PackTestModel {
 public:
  explicit PackTestModel(TestModel model) {
    write_model(model, directory_);
    auto opened =
        load_model(context_.get(), directory_.path(), {.populate = false, .experts_only = true});
    MOTLEY_CHECK(opened.is_ok(), opened.status().message());
    loaded_.emplace(std::move(*opened));
    pack_.checkpoint = &loaded_->weights.checkpoint();
    for (const LayerSpec& layer : loaded_->spec.layers) add(layer);
    for (const DraftSpec& draft : loaded_->spec.drafts) add(draft.layer);
  }
  explicit PackTestModel(const TestModelOptions& options = {})
      : PackTestModel(TestModel(options)) {}

  const PackModel& pack() const { return pack_; }
  Context& context() { return context_.get(); }
  FaultPoints& faults() { return context_.faults(); }
  const std::string& path() const { return directory_.path(); }

  Result<PackResult> write(std::vector<std::string> directories, bool mirror = false) {
    return write_packs(context(), pack_, {.directories = std::move(directories), .mirror = mirror});
  }
  // The record of an expert as it must be.
  std::vector<std::byte> record(int layer, int expert) const {
    const ExpertWeights& weights =
        pack_.layers[static_cast<size_t>(layer)][static_cast<size_t>(expert)];
    const RecordShape shape = RecordShape::of(weights);
    std::vector<std::byte> bytes(static_cast<size_t>(shape.bytes()));
    write_record(weights, shape, bytes);
    return bytes;
  }

 private:
  void add(const LayerSpec& layer) {
    std::vector<ExpertWeights>& experts = pack_.layers.emplace_back();
    const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward);
    if (moe == nullptr) return;
    for (int e = 0; e < moe->experts; ++e) {
      experts.push_back({loaded_->weights.expert(moe->gate, e), loaded_->weights.expert(moe->up, e),
                         loaded_->weights.expert(moe->down, e)});
    }
  }

  OwnedContext context_{{.threads = 2, .pin = false}};
  TemporaryDirectory directory_;
  std::optional<LoadedModel> loaded_;
  PackModel pack_;
};

}  // namespace motley
