#include "io/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "io/safetensors.h"

namespace motley {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr size_t kMaxShards = 2000;

Result<SafetensorsIndex> read_index(const ModelDirectory& directory) {
  const std::string file = fmt::format("{}/{}", directory.path(), kIndexName);
  MOTLEY_ASSIGN_OR_RETURN(const std::string text,
                          directory.read_text(kIndexName, SafetensorsHeader::kMaxHeaderBytes));
  Result<SafetensorsIndex> index = parse_safetensors_index(text);
  if (!index.is_ok()) return index.status().with_context(file);
  return index;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(Context& context, const std::string& path) {
  MOTLEY_ASSIGN_OR_RETURN(std::optional<GgufFiles> gguf, find_gguf_files(context.faults, path));
  if (gguf) return open_gguf(context, std::move(*gguf));
  MOTLEY_ASSIGN_OR_RETURN(ModelDirectory directory, ModelDirectory::open(context.faults, path));
  const bool has_index = directory.contains(kIndexName);
  const bool has_single = directory.contains(kSingleName);
  Checkpoint checkpoint(std::move(directory));
  if (!has_index && !has_single) {
    return not_found(fmt::format("{}: holds neither {} nor {}", path, kSingleName, kIndexName));
  }
  if (!has_index) {
    MOTLEY_RETURN_IF_ERROR(checkpoint.add_shard(context, std::string(kSingleName)));
    MOTLEY_RETURN_IF_ERROR(checkpoint.sort_and_check_unique());
    return checkpoint;
  }

  MOTLEY_ASSIGN_OR_RETURN(const SafetensorsIndex index, read_index(checkpoint.directory_));
  std::set<std::string> names;
  for (const auto& [tensor, shard] : index.shard_of_tensor) names.insert(shard);
  if (names.size() > kMaxShards) {
    return corrupt(fmt::format("{}/{}: names more than {} shards", path, kIndexName, kMaxShards));
  }
  if (has_single && !names.contains(std::string(kSingleName))) {
    return corrupt(fmt::format("{}: holds {} and an index that does not name it; remove one", path,
                               kSingleName));
  }
  for (const std::string& name : names) {
    MOTLEY_RETURN_IF_ERROR(checkpoint.add_shard(context, name));
  }
  MOTLEY_RETURN_IF_ERROR(checkpoint.sort_and_check_unique());
  MOTLEY_RETURN_IF_ERROR(checkpoint.check_against(index));
  return checkpoint;
}

Status Checkpoint::add_shard(Context& context, const std::string& name) {
  MOTLEY_ASSIGN_OR_RETURN(File file, directory_.open_file(name));
  MOTLEY_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::map(context.faults, std::move(file)));
  Result<SafetensorsHeader> header = read_safetensors_header(mapped.bytes());
  if (!header.is_ok()) return header.status().with_context(mapped.file().name());
  const auto data = mapped.bytes().subspan(static_cast<size_t>(header->data_start));
  for (SafetensorsEntry& entry : header->tensors) {
    const auto bytes = data.subspan(static_cast<size_t>(entry.begin),
                                    static_cast<size_t>(entry.end - entry.begin));
    tensors_.push_back({.name = std::move(entry.name),
                        .entry = {.dtype = entry.dtype, .shape = std::move(entry.shape)},
                        .bytes = bytes,
                        .shard = shards_.size()});
  }
  shards_.push_back(std::move(mapped));
  return Status::ok();
}

Status Checkpoint::sort_and_check_unique() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const CheckpointTensor& a, const CheckpointTensor& b) { return a.name < b.name; });
  const auto repeated =
      std::adjacent_find(tensors_.begin(), tensors_.end(),
                         [](const auto& a, const auto& b) { return a.name == b.name; });
  if (repeated == tensors_.end()) return Status::ok();
  return corrupt(fmt::format("{}: tensor '{}' is also in {}", shard(*repeated).file().name(),
                             repeated->name, shard(*std::next(repeated)).file().name()));
}

Status Checkpoint::check_against(const SafetensorsIndex& index) const {
  const std::string file = fmt::format("{}/{}", directory_.path(), kIndexName);
  // Both lists are sorted by name and free of duplicates.
  auto stored = tensors_.begin();
  for (const auto& [name, shard_name] : index.shard_of_tensor) {
    if (stored != tensors_.end() && stored->name < name) break;
    if (stored == tensors_.end() || stored->name != name) {
      return corrupt(fmt::format("{}: tensor '{}' is not in {}", file, name, shard_name));
    }
    const std::string& actual = shard(*stored).file().name();
    if (actual != directory_.path() + "/" + shard_name) {
      return corrupt(
          fmt::format("{}: tensor '{}' is in {}, not in {}", file, name, actual, shard_name));
    }
    ++stored;
  }
  if (stored == tensors_.end()) return Status::ok();
  return corrupt(fmt::format("{}: tensor '{}' is not listed in {}", shard(*stored).file().name(),
                             stored->name, kIndexName));
}

const CheckpointTensor* Checkpoint::find_tensor(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const CheckpointTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

const CatalogEntry* Checkpoint::find(std::string_view name) const {
  const CheckpointTensor* tensor = find_tensor(name);
  return tensor == nullptr ? nullptr : &tensor->entry;
}

int64_t Checkpoint::data_bytes() const {
  int64_t total = 0;
  for (const CheckpointTensor& tensor : tensors_)
    total += static_cast<int64_t>(tensor.bytes.size());
  return total;
}

Status Checkpoint::check_unchanged() const {
  for (const MappedFile& mapped : shards_) MOTLEY_RETURN_IF_ERROR(mapped.file().check_unchanged());
  return Status::ok();
}

}  // namespace motley
