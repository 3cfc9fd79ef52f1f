#include "io/gguf_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <string_view>

#include "io/gguf.h"
#include "io/mapped_file.h"

namespace motley {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr int kMaxShards = 2000;
constexpr size_t kListed = 5;

// "NAME-00002-of-00003.gguf" as NAME, 2 and 3.
struct ShardName {
  std::string stem;
  int shards = 1;
};

std::optional<int> five_digits(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != 5 || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

ShardName parse_shard_name(std::string_view name) {
  name.remove_suffix(kSuffix.size());
  constexpr std::string_view kPattern = "-00001-of-00001";
  const ShardName single{std::string(name), 1};
  if (name.size() <= kPattern.size()) return single;
  const std::string_view tail = name.substr(name.size() - kPattern.size());
  const auto number = five_digits(tail.substr(1, 5));
  const auto count = five_digits(tail.substr(10, 5));
  const bool fits = tail.front() == '-' && tail.substr(6, 4) == "-of-" && number && count &&
                    *number >= 1 && *number <= *count && *count <= kMaxShards;
  if (!fits) return single;
  return {std::string(name.substr(0, name.size() - kPattern.size())), *count};
}

std::vector<std::string> names_of(const ShardName& shard, const std::string& name) {
  if (shard.shards == 1) return {name};
  std::vector<std::string> names;
  for (int i = 1; i <= shard.shards; ++i) {
    names.push_back(fmt::format("{}-{:05}-of-{:05}{}", shard.stem, i, shard.shards, kSuffix));
  }
  return names;
}

// One file of each model in the directory.
Result<std::vector<std::string>> models_in(const std::string& path) {
  std::set<std::string> stems;
  std::vector<std::string> models;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(path, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.ends_with(kSuffix) || name.starts_with("mmproj")) continue;
    if (stems.insert(parse_shard_name(name).stem).second) models.push_back(name);
  }
  if (error) return io_error(path, error.value());
  std::sort(models.begin(), models.end());
  return models;
}

Result<std::optional<GgufFiles>> files_of(FaultPoints& faults, const std::string& directory,
                                          const std::string& name) {
  MOTLEY_ASSIGN_OR_RETURN(ModelDirectory opened, ModelDirectory::open(faults, directory));
  std::vector<std::string> names = names_of(parse_shard_name(name), name);
  return std::optional<GgufFiles>(GgufFiles{std::move(opened), std::move(names)});
}

}  // namespace

Result<std::optional<GgufFiles>> find_gguf_files(FaultPoints& faults, const std::string& path) {
  const std::filesystem::path place(path);
  std::error_code error;
  if (!std::filesystem::is_directory(place, error)) {
    if (!path.ends_with(kSuffix)) return std::optional<GgufFiles>();
    const std::string parent = place.parent_path().string();
    return files_of(faults, parent.empty() ? "." : parent, place.filename().string());
  }
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (std::filesystem::exists(place / name, error)) return std::optional<GgufFiles>();
  }
  MOTLEY_ASSIGN_OR_RETURN(std::vector<std::string> models, models_in(path));
  if (models.empty()) return std::optional<GgufFiles>();
  if (models.size() > 1) {
    models.resize(std::min(models.size(), kListed));
    return invalid_argument(
        fmt::format("{}: holds several GGUF models, name one: {}", path, fmt::join(models, ", ")));
  }
  return files_of(faults, path, models.front());
}

Result<std::optional<GgufMetadata>> read_gguf_metadata(FaultPoints& faults,
                                                       const std::string& path) {
  MOTLEY_ASSIGN_OR_RETURN(const std::optional<GgufFiles> files, find_gguf_files(faults, path));
  if (!files) return std::optional<GgufMetadata>();
  MOTLEY_ASSIGN_OR_RETURN(File file, files->directory.open_file(files->names.front()));
  MOTLEY_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::map(faults, std::move(file)));
  Result<GgufHeader> header = read_gguf_header(mapped.bytes());
  if (!header.is_ok()) return header.status().with_context(mapped.file().name());
  return std::optional<GgufMetadata>(std::move(header->metadata));
}

}  // namespace motley
