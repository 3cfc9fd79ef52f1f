#include "io/gguf_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>

#include "base/thread_pool.h"
#include "tensor/gguf_weights.h"

namespace motley {

WeightMatrix gguf_matrix(const CheckpointTensor& tensor, int64_t rows, int64_t cols) {
  return {.format = weight_format(*tensor.block),
          .rows = rows,
          .cols = cols,
          .codes = {tensor.bytes.data(), gguf_row_bytes(*tensor.block, cols)}};
}

bool gguf_scales_are_finite(const WeightMatrix& matrix) {
  const auto type = gguf_type(matrix.format);
  if (!type) return true;
  const int64_t blocks = matrix.cols / gguf_facts(*type).values * matrix.rows;
  return find_bad_gguf_block(*type, reinterpret_cast<const uint8_t*>(matrix.codes.data), blocks) <
         0;
}

Status check_gguf_scales(Context& context, const Checkpoint& checkpoint, const ModuleTable& table,
                         bool skip_experts) {
  const std::vector<Module>& modules = table.modules();
  const auto count = static_cast<int64_t>(modules.size());
  std::atomic<int64_t> first_bad{count};
  context.threads.parallel_for(count, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Module& module = modules[static_cast<size_t>(i)];
      if (skip_experts && module.role == TensorRole::kExperts) continue;
      WeightMatrix all = module.matrix;
      all.rows *= module.experts;
      if (gguf_scales_are_finite(all)) continue;
      int64_t seen = first_bad.load();
      while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
      }
    }
  });
  if (first_bad.load() == count) return Status::ok();
  const CheckpointTensor& bad = *modules[static_cast<size_t>(first_bad.load())].tensors.front();
  return corrupt(fmt::format("{}: tensor '{}' has a block whose scale is NaN or infinite",
                             checkpoint.shard(bad).file().name(), bad.name));
}

std::string gguf_format_name(const WeightMatrix& matrix) {
  const auto type = gguf_type(matrix.format);
  if (!type) return "";
  std::string name(gguf_facts(*type).name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

}  // namespace motley
