#include "experts/pack/pack_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/hash.h"
#include "experts/cache/little_endian.h"
#include "experts/record_shape.h"
#include "spec/config_json.h"

namespace motley {
namespace {

constexpr std::string_view kFormat = "motley pack 1";
constexpr size_t kMaxFiles = 4096;
constexpr size_t kMaxLayers = 4096;
constexpr int64_t kMaxExperts = 1 << 16;
constexpr int64_t kMaxRecordPart = int64_t{1} << 32;
constexpr int64_t kMaxRecords = int64_t{1} << 20;
constexpr int64_t kMaxFileBytes = int64_t{1} << 50;
constexpr JsonLimits kLimits = {.max_bytes = size_t{4} << 20, .max_depth = 8};

Result<std::vector<ConfigObject>> objects(const ConfigObject& owner, std::string_view key,
                                          size_t max, std::string_view file) {
  const JsonValue* value = owner.value().find(key);
  const auto* list = value == nullptr ? nullptr : std::get_if<JsonValue::Array>(&value->data);
  if (list == nullptr || list->empty() || list->size() > max) {
    return owner.error(key, fmt::format("must be a list of 1 to {}", max));
  }
  std::vector<ConfigObject> members;
  for (const JsonValue& member : *list) {
    if (member.as_object() == nullptr) return owner.error(key, "must hold objects");
    members.emplace_back(member, file, fmt::format("{}[{}].", key, members.size()));
  }
  return members;
}

// 64 bits do not fit JSON's numbers everywhere, so hashes are 16 hexadecimal digits.
Result<uint64_t> hash_member(const ConfigObject& object, std::string_view key) {
  MOTLEY_ASSIGN_OR_RETURN(const std::string text, object.text(key));
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (text.size() != 16 || error != std::errc() || stop != end) {
    return object.error(key, "must be 16 hexadecimal digits");
  }
  return value;
}

Result<PackSource> parse_source(const ConfigObject& root, std::string_view file) {
  PackSource source;
  MOTLEY_ASSIGN_OR_RETURN(source.sample_hash, hash_member(root, "sample_hash"));
  MOTLEY_ASSIGN_OR_RETURN(const auto files, objects(root, "files", kMaxFiles, file));
  for (const ConfigObject& object : files) {
    PackSourceFile one;
    MOTLEY_ASSIGN_OR_RETURN(one.name, object.text("name"));
    if (one.name.size() > 255) return object.error("name", "is too long");
    MOTLEY_ASSIGN_OR_RETURN(one.bytes, object.integer("bytes", 0, kMaxFileBytes));
    MOTLEY_ASSIGN_OR_RETURN(one.header_hash, hash_member(object, "header_hash"));
    source.files.push_back(std::move(one));
  }
  return source;
}

// Every part of a split has experts of every layer.
Result<PackLayer> parse_layer(const ConfigObject& object, int64_t least_layer, int64_t parts) {
  MOTLEY_ASSIGN_OR_RETURN(const int64_t layer,
                          object.integer("layer", least_layer, int64_t{kMaxLayers} - 1));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t experts, object.integer("experts", parts, kMaxExperts));
  PackLayer parsed{.layer = static_cast<int32_t>(layer), .experts = static_cast<int32_t>(experts)};
  for (const auto& [key, bytes] : {std::pair("gate_up_bytes", &parsed.gate_up_bytes),
                                   std::pair("down_bytes", &parsed.down_bytes)}) {
    MOTLEY_ASSIGN_OR_RETURN(*bytes, object.integer(key, kRecordBlock, kMaxRecordPart));
    if (*bytes % kRecordBlock != 0) {
      return object.error(key, fmt::format("must be a multiple of {}", kRecordBlock));
    }
  }
  return parsed;
}

uint64_t seal_of(const PackManifest& manifest, int64_t index, const RecordSums& sums) {
  std::vector<std::byte> bytes;
  append_text(bytes, kFormat);
  for (const uint64_t value : {manifest.source.sample_hash, static_cast<uint64_t>(manifest.parts),
                               static_cast<uint64_t>(manifest.part), static_cast<uint64_t>(index),
                               sums.gate_up, sums.down}) {
    append_little(bytes, value);
  }
  return hash_bytes(bytes);
}

}  // namespace

int part_of_expert(int parts, int layer, int expert) {
  return (expert + layer) % parts;
}

int64_t position_in_part(int parts, int expert) {
  // Every run of `parts` experts has one of each part.
  return expert / parts;
}

int expert_at(int parts, int part, int layer, int64_t position) {
  const int first = ((part - layer) % parts + parts) % parts;
  return static_cast<int>(position) * parts + first;
}

std::string layer_file_name(int layer) {
  return fmt::format("layer-{:05}.experts", layer);
}

int64_t PackManifest::records_of(size_t index) const {
  const PackLayer& layer = layers[index];
  const int64_t whole = layer.experts / parts;
  return whole + (expert_at(parts, part, layer.layer, whole) < layer.experts ? 1 : 0);
}

int64_t PackManifest::records() const {
  int64_t count = 0;
  for (size_t i = 0; i < layers.size(); ++i) count += records_of(i);
  return count;
}

int64_t PackManifest::bytes() const {
  int64_t sum = 0;
  for (size_t i = 0; i < layers.size(); ++i) sum += records_of(i) * layers[i].record_bytes();
  return sum;
}

Result<PackManifest> parse_pack_manifest(std::string_view text, std::string file) {
  MOTLEY_ASSIGN_OR_RETURN(const ConfigJson json, ConfigJson::parse(text, std::move(file), kLimits));
  const ConfigObject root = json.root();
  MOTLEY_ASSIGN_OR_RETURN(const std::string format, root.text("format"));
  if (format != kFormat) {
    return root.error("format", fmt::format("must be '{}'; pack the model again", kFormat));
  }
  PackManifest manifest;
  MOTLEY_ASSIGN_OR_RETURN(const int64_t parts, root.integer("parts", 1, kMaxPackParts));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t part, root.integer("part", 0, parts - 1));
  manifest.parts = static_cast<int>(parts);
  manifest.part = static_cast<int>(part);
  MOTLEY_ASSIGN_OR_RETURN(manifest.source, parse_source(root, json.file()));
  MOTLEY_ASSIGN_OR_RETURN(const auto layers, objects(root, "layers", kMaxLayers, json.file()));
  int64_t records = 0;
  for (const ConfigObject& object : layers) {
    const int64_t least = manifest.layers.empty() ? 0 : manifest.layers.back().layer + 1;
    MOTLEY_ASSIGN_OR_RETURN(const PackLayer layer, parse_layer(object, least, parts));
    manifest.layers.push_back(layer);
    records += layer.experts;
    if (records > kMaxRecords) return root.error("layers", "hold too many experts");
  }
  return manifest;
}

std::string format_pack_manifest(const PackManifest& manifest) {
  std::string text = fmt::format(
      "{{\"format\": {}, \"parts\": {}, \"part\": {}, \"sample_hash\": \"{:016x}\",\n \"files\": [",
      json_quote(kFormat), manifest.parts, manifest.part, manifest.source.sample_hash);
  for (const PackSourceFile& file : manifest.source.files) {
    text += fmt::format("{}\n  {{\"name\": {}, \"bytes\": {}, \"header_hash\": \"{:016x}\"}}",
                        &file == manifest.source.files.data() ? "" : ",", json_quote(file.name),
                        file.bytes, file.header_hash);
  }
  text += "],\n \"layers\": [";
  for (const PackLayer& layer : manifest.layers) {
    text += fmt::format(
        "{}\n  {{\"layer\": {}, \"experts\": {}, \"gate_up_bytes\": {}, \"down_bytes\": {}}}",
        &layer == manifest.layers.data() ? "" : ",", layer.layer, layer.experts,
        layer.gate_up_bytes, layer.down_bytes);
  }
  return text + "]}\n";
}

std::vector<std::byte> pack_table_entry(const PackManifest& manifest, int64_t index,
                                        const RecordSums& sums) {
  std::vector<std::byte> bytes;
  append_little(bytes, sums.gate_up);
  append_little(bytes, sums.down);
  append_little(bytes, seal_of(manifest, index, sums));
  return bytes;
}

std::vector<std::optional<RecordSums>> parse_pack_table(const PackManifest& manifest,
                                                        std::span<const std::byte> table) {
  const int64_t records = manifest.records();
  std::vector<std::optional<RecordSums>> entries(static_cast<size_t>(records));
  const int64_t there = std::min<int64_t>(records, std::ssize(table) / kPackEntryBytes);
  for (int64_t i = 0; i < there; ++i) {
    const auto entry = table.subspan(static_cast<size_t>(i * kPackEntryBytes), kPackEntryBytes);
    const RecordSums sums{load_little<uint64_t>(entry), load_little<uint64_t>(entry.subspan(8))};
    if (load_little<uint64_t>(entry.subspan(16)) == seal_of(manifest, i, sums)) {
      entries[static_cast<size_t>(i)] = sums;
    }
  }
  return entries;
}

}  // namespace motley
