// model.safetensors.index.json; declared in checkpoint.h.
#include <fmt/format.h>

#include <algorithm>

#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "spec/config_json.h"

namespace motley {
namespace {

// Collects weight_map; the members beside it ("metadata") carry nothing that is relied on.
class IndexEvents final : public JsonEvents {
 public:
  Status begin_object() override {
    if (++depth_ == 2 && is_map_) in_map_ = true;
    if (in_map_ && depth_ > 2) return corrupt("weight_map must map names to file names");
    return Status::ok();
  }
  Status begin_array() override {
    if (in_map_ || depth_ == 0 || (depth_ == 1 && is_map_))
      return corrupt("weight_map must map names to file names");
    ++depth_;
    return Status::ok();
  }
  Status end() override {
    if (depth_-- == 2) in_map_ = false;
    return Status::ok();
  }
  Status key(std::string_view name) override {
    if (depth_ == 1) {
      is_map_ = name == "weight_map";
      if (is_map_ && std::exchange(has_map_, true)) return corrupt("duplicate name 'weight_map'");
    }
    if (!in_map_) return Status::ok();
    if (name.size() > SafetensorsHeader::kMaxNameBytes) return corrupt("a tensor name is too long");
    if (index_.shard_of_tensor.size() >= SafetensorsHeader::kMaxTensors) {
      return corrupt("weight_map holds too many tensors");
    }
    name_ = name;
    return Status::ok();
  }
  Status scalar(const JsonScalar& value) override {
    if (!in_map_) return Status::ok();
    const auto* text = std::get_if<std::string_view>(&value);
    if (text == nullptr || !is_plain_file_name(*text) || !text->ends_with(".safetensors")) {
      return corrupt(fmt::format("weight_map '{}': {} is not the name of a .safetensors file here",
                                 name_, text == nullptr ? "the value" : json_excerpt(*text)));
    }
    index_.shard_of_tensor.emplace_back(name_, *text);
    return Status::ok();
  }

  bool has_map() const { return has_map_; }
  SafetensorsIndex take() { return std::move(index_); }

 private:
  SafetensorsIndex index_;
  int depth_ = 0;
  bool is_map_ = false;
  bool in_map_ = false;
  bool has_map_ = false;
  std::string name_;
};

}  // namespace

Result<SafetensorsIndex> parse_safetensors_index(std::string_view text) {
  IndexEvents events;
  const JsonLimits limits{.max_bytes = SafetensorsHeader::kMaxHeaderBytes, .max_depth = 8};
  MOTLEY_RETURN_IF_ERROR(parse_json(text, limits, events));
  if (!events.has_map()) return corrupt("has no weight_map");
  SafetensorsIndex index = events.take();
  auto& names = index.shard_of_tensor;
  std::sort(names.begin(), names.end());
  const auto repeated = std::adjacent_find(
      names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (repeated != names.end()) return corrupt("duplicate name '" + repeated->first + "'");
  if (names.empty()) return corrupt("weight_map is empty");
  return index;
}

}  // namespace motley
