// What family files write most: tensors appended to a ModelSpec, each with its name in reports, its
// module in the checkpoint and the part of the ledger it counts for.
// Ownership: refers to the ModelSpec, which outlives it. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "spec/model_spec.h"

namespace motley {

class TensorList {
 public:
  explicit TensorList(ModelSpec* spec) : spec_(spec) {}

  TensorHandle add(TensorSpec tensor) {
    spec_->tensors.push_back(std::move(tensor));
    return {static_cast<int32_t>(spec_->tensors.size()) - 1};
  }

  TensorHandle matrix(std::string name, std::string module, int64_t rows, int64_t cols,
                      std::string part, bool bare = false) {
    return add({.name = std::move(name),
                .role = TensorRole::kMatrix,
                .shape = {rows, cols},
                .pieces = {{.module = std::move(module), .bare = bare, .row_count = rows}},
                .part = std::move(part)});
  }

  // float32, never quantised.
  TensorHandle table(std::string name, std::string module, int64_t rows, int64_t cols,
                     std::string part, bool bare) {
    return add({.name = std::move(name),
                .role = TensorRole::kTable,
                .shape = {rows, cols},
                .pieces = {{.module = std::move(module), .bare = bare, .row_count = rows}},
                .part = std::move(part)});
  }

  TensorHandle vector(std::string name, std::string module, int64_t size, std::string part,
                      bool bare = false) {
    return add({.name = std::move(name),
                .role = TensorRole::kVector,
                .shape = {size},
                .pieces = {{.module = std::move(module), .bare = bare, .row_count = size}},
                .part = std::move(part)});
  }

  // `modules`: one after the other, with their channels.
  TensorHandle convolution(std::string name,
                           const std::vector<std::pair<std::string, int64_t>>& modules,
                           int64_t kernel, std::string part) {
    TensorSpec tensor{
        .name = std::move(name), .role = TensorRole::kConvolution, .part = std::move(part)};
    int64_t channels = 0;
    for (const auto& [module, count] : modules) {
      tensor.pieces.push_back({.module = module, .row_count = count});
      channels += count;
    }
    tensor.shape = {channels, kernel};
    return add(std::move(tensor));
  }

  // "{}" in the module stands for the expert's number.
  TensorHandle experts(std::string name, std::string module, int64_t experts, int64_t rows,
                       int64_t cols, std::string part) {
    return add({.name = std::move(name),
                .role = TensorRole::kExperts,
                .shape = {experts, rows, cols},
                .pieces = {{.module = std::move(module), .row_count = rows}},
                .part = std::move(part)});
  }

 private:
  ModelSpec* spec_;
};

}  // namespace motley
