// The parts of Checkpoint that concern GGUF files.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/checkpoint.h"
#include "io/gguf.h"

namespace motley {
namespace {

// What a shard says of the set; files that are whole say nothing.
Status check_split(const GgufMetadata& metadata, size_t index, size_t shards) {
  const auto most = static_cast<int64_t>(shards);
  MOTLEY_ASSIGN_OR_RETURN(const int64_t count,
                          metadata.integer_or("split.count", 1, 0, int64_t{1} << 16));
  if (std::max<int64_t>(count, 1) != most) {
    return corrupt(fmt::format("key 'split.count': {}, but the file's name says {}", count, most));
  }
  MOTLEY_ASSIGN_OR_RETURN(const int64_t number,
                          metadata.integer_or("split.no", 0, 0, int64_t{1} << 16));
  if (number == static_cast<int64_t>(index)) return Status::ok();
  return corrupt(fmt::format("key 'split.no': {}, but the file's name says {}", number, index));
}

}  // namespace

Result<Checkpoint> Checkpoint::open_gguf(Context& context, GgufFiles files) {
  Checkpoint checkpoint(std::move(files.directory));
  for (size_t i = 0; i < files.names.size(); ++i) {
    MOTLEY_RETURN_IF_ERROR(checkpoint.add_gguf_shard(context, files, i));
  }
  MOTLEY_RETURN_IF_ERROR(checkpoint.sort_and_check_unique());
  const auto found = static_cast<int64_t>(checkpoint.tensors_.size());
  const std::string& first = checkpoint.shards_.front().file().name();
  Result<int64_t> stated = checkpoint.gguf_->integer_or("split.tensors.count", found, 0, INT64_MAX);
  if (!stated.is_ok()) return stated.status().with_context(first);
  if (*stated != found) {
    return corrupt(fmt::format("{}: key 'split.tensors.count': {}, but the files hold {}", first,
                               *stated, found));
  }
  return checkpoint;
}

Status Checkpoint::add_gguf_shard(Context& context, const GgufFiles& files, size_t index) {
  MOTLEY_ASSIGN_OR_RETURN(File file, directory_.open_file(files.names[index]));
  MOTLEY_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::map(context.faults, std::move(file)));
  const std::string& name = mapped.file().name();
  Result<GgufHeader> header = read_gguf_header(mapped.bytes());
  if (!header.is_ok()) return header.status().with_context(name);
  MOTLEY_RETURN_IF_ERROR(
      check_split(header->metadata, index, files.names.size()).with_context(name));
  const auto data = mapped.bytes().subspan(
      std::min(static_cast<size_t>(header->data_start), mapped.bytes().size()));
  for (GgufTensor& tensor : header->tensors) {
    const auto bytes = data.subspan(static_cast<size_t>(tensor.begin),
                                    static_cast<size_t>(tensor.end - tensor.begin));
    tensors_.push_back({.name = std::move(tensor.name),
                        .entry = {.dtype = tensor.dtype, .shape = std::move(tensor.shape)},
                        .bytes = bytes,
                        .shard = shards_.size(),
                        .block = tensor.block});
  }
  shards_.push_back(std::move(mapped));
  if (index == 0) gguf_ = std::make_unique<const GgufMetadata>(std::move(header->metadata));
  return Status::ok();
}

Status Checkpoint::undo_conversion(const GgufModelPlan& plan) {
  const auto find_mutable = [this](std::string_view name) {
    const CheckpointTensor* found = find_tensor(name);
    return found == nullptr ? nullptr : &tensors_[static_cast<size_t>(found - tensors_.data())];
  };
  for (const auto& [name, heads] : plan.tiled_columns) {
    CheckpointTensor* tensor = find_mutable(name);
    if (tensor != nullptr) tensor->tiled_columns = heads;
  }
  for (const std::string& name : plan.negative_exponentials) {
    CheckpointTensor* tensor = find_mutable(name);
    if (tensor == nullptr) continue;  // the loader lists what is missing
    const std::string place = fmt::format("{}: tensor '{}'", shard(*tensor).file().name(), name);
    if (tensor->entry.dtype != DType::kF32) {
      return corrupt(fmt::format(
          "{}: element type {}, but F32 is needed", place,
          tensor->block ? gguf_facts(*tensor->block).name : dtype_name(tensor->entry.dtype)));
    }
    std::vector<float> values(tensor->bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    for (float& value : values) {
      if (!std::isfinite(value) || value >= 0) {
        return corrupt(fmt::format("{}: holds {}, which is no -exp(A_log)", place, value));
      }
      value = std::log(-value);
    }
    logarithms_.push_back(std::move(values));
    tensor->bytes = std::as_bytes(std::span(logarithms_.back()));
  }
  return Status::ok();
}

}  // namespace motley
