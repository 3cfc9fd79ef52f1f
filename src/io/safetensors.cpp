#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "spec/config_json.h"

namespace motley {
namespace {

// A state machine over the JSON events of a header.
class HeaderEvents final : public JsonEvents {
 public:
  Status begin_object() override {
    if (place_ == Place::kOutside) return go(Place::kTop);
    if (place_ == Place::kTop && is_metadata_) return go(Place::kMetadata);
    if (place_ == Place::kTop) {
      current_ = {};
      seen_ = {};
      return go(Place::kTensor);
    }
    return unexpected();
  }

  Status begin_array() override {
    if (place_ != Place::kTensor || field_ == Field::kDtype) return unexpected();
    numbers_.clear();
    return go(Place::kNumbers);
  }

  Status end() override {
    switch (place_) {
      case Place::kNumbers:
        return finish_numbers();
      case Place::kTensor:
        return finish_tensor();
      case Place::kMetadata:
        return go(Place::kTop);
      default:
        return go(Place::kDone);
    }
  }

  Status key(std::string_view name) override {
    if (name.size() > SafetensorsHeader::kMaxNameBytes) {
      return corrupt(fmt::format("a name of {} bytes exceeds the limit of {}", name.size(),
                                 SafetensorsHeader::kMaxNameBytes));
    }
    if (place_ == Place::kTensor) return tensor_field(name);
    if (place_ == Place::kMetadata) {
      metadata_key_ = name;
      return Status::ok();
    }
    is_metadata_ = name == "__metadata__";
    if (is_metadata_ && std::exchange(has_metadata_, true)) return duplicate(name);
    if (header_.tensors.size() >= SafetensorsHeader::kMaxTensors) {
      return corrupt(fmt::format("more than {} tensors", SafetensorsHeader::kMaxTensors));
    }
    name_ = name;
    return Status::ok();
  }

  Status scalar(const JsonScalar& value) override {
    const auto* text = std::get_if<std::string_view>(&value);
    if (place_ == Place::kMetadata && text != nullptr) {
      header_.metadata.emplace_back(metadata_key_, *text);
      return Status::ok();
    }
    if (place_ == Place::kTensor && field_ == Field::kDtype && text != nullptr) {
      const std::optional<DType> dtype = dtype_from_name(*text);
      if (!dtype) {
        return unsupported(
            fmt::format("tensor '{}': unknown element type {}", name_, json_excerpt(*text)));
      }
      current_.dtype = *dtype;
      return Status::ok();
    }
    const auto* number = std::get_if<uint64_t>(&value);
    if (place_ == Place::kNumbers && number != nullptr) return add_number(*number);
    if (place_ == Place::kNumbers) {
      return corrupt(fmt::format("tensor '{}': {} must hold natural numbers", name_,
                                 field_ == Field::kShape ? "shape" : "data_offsets"));
    }
    return unexpected();
  }

  SafetensorsHeader take() { return std::move(header_); }

 private:
  enum class Place { kOutside, kTop, kMetadata, kTensor, kNumbers, kDone };
  enum class Field { kNone, kDtype, kShape, kOffsets };
  struct Seen {
    bool dtype = false;
    bool shape = false;
    bool offsets = false;
  };

  Status go(Place place) {
    place_ = place;
    return Status::ok();
  }
  Status unexpected() const {
    if (name_.empty()) return corrupt("the header must be an object of tensors");
    return corrupt(
        fmt::format("tensor '{}': the entry must be {{dtype, shape, data_offsets}}", name_));
  }
  static Status duplicate(std::string_view name) {
    return corrupt(fmt::format("duplicate name '{}'", name));
  }

  Status tensor_field(std::string_view name) {
    const auto take = [&](Field field, bool* seen) {
      field_ = field;
      return std::exchange(*seen, true) ? duplicate(fmt::format("{}.{}", name_, name))
                                        : Status::ok();
    };
    if (name == "dtype") return take(Field::kDtype, &seen_.dtype);
    if (name == "shape") return take(Field::kShape, &seen_.shape);
    if (name == "data_offsets") return take(Field::kOffsets, &seen_.offsets);
    return corrupt(fmt::format("tensor '{}': unknown field {}", name_, json_excerpt(name)));
  }

  Status add_number(uint64_t number) {
    if (number > SafetensorsHeader::kMaxNumber) {
      return corrupt(fmt::format("tensor '{}': number {} exceeds 2^53", name_, number));
    }
    if (numbers_.size() >= SafetensorsHeader::kMaxRank) {
      return corrupt(fmt::format("tensor '{}': more than {} dimensions or offsets", name_,
                                 SafetensorsHeader::kMaxRank));
    }
    numbers_.push_back(static_cast<int64_t>(number));
    return Status::ok();
  }

  Status finish_numbers() {
    place_ = Place::kTensor;
    if (field_ == Field::kShape) {
      current_.shape = numbers_;
      return Status::ok();
    }
    if (numbers_.size() != 2) {
      return corrupt(fmt::format("tensor '{}': data_offsets needs two numbers", name_));
    }
    current_.begin = numbers_[0];
    current_.end = numbers_[1];
    return Status::ok();
  }

  Status finish_tensor() {
    if (!seen_.dtype || !seen_.shape || !seen_.offsets) return unexpected();
    current_.name = name_;
    header_.tensors.push_back(std::move(current_));
    return go(Place::kTop);
  }

  SafetensorsHeader header_;
  Place place_ = Place::kOutside;
  Field field_ = Field::kNone;
  bool is_metadata_ = false;
  bool has_metadata_ = false;
  std::string name_;
  std::string metadata_key_;
  SafetensorsEntry current_;
  Seen seen_;
  std::vector<int64_t> numbers_;
};

Status check_duplicates(const std::vector<SafetensorsEntry>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const SafetensorsEntry& tensor : tensors) names.emplace_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto repeated = std::adjacent_find(names.begin(), names.end());
  if (repeated == names.end()) return Status::ok();
  return corrupt(fmt::format("duplicate name '{}'", *repeated));
}

Status check_size(const SafetensorsEntry& tensor) {
  int64_t bytes = dtype_bytes(tensor.dtype);
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      return corrupt(fmt::format("tensor '{}': shape [{}] overflows", tensor.name,
                                 fmt::join(tensor.shape, ", ")));
    }
  }
  if (tensor.begin > tensor.end || tensor.end - tensor.begin != bytes) {
    return corrupt(fmt::format(
        "tensor '{}': data_offsets [{}, {}] do not hold the {} bytes of {} [{}]", tensor.name,
        tensor.begin, tensor.end, bytes, dtype_name(tensor.dtype), fmt::join(tensor.shape, ", ")));
  }
  return Status::ok();
}

// `tensors` in order of their bytes must cover [0, data_bytes) without hole or overlap.
Status check_tiling(const std::vector<SafetensorsEntry>& tensors, int64_t data_bytes) {
  int64_t covered = 0;
  for (const SafetensorsEntry& tensor : tensors) {
    if (tensor.end > data_bytes) {
      return corrupt(fmt::format("truncated: tensor '{}' ends at data byte {} of {}", tensor.name,
                                 tensor.end, data_bytes));
    }
    if (tensor.begin != covered) {
      return corrupt(fmt::format("tensor '{}': begins at data byte {}, {} byte {}", tensor.name,
                                 tensor.begin,
                                 tensor.begin < covered ? "overlaps" : "leaves a hole at",
                                 tensor.begin < covered ? covered - 1 : covered));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    return corrupt(fmt::format("{} bytes after the last tensor", data_bytes - covered));
  }
  return Status::ok();
}

}  // namespace

Result<int64_t> safetensors_header_bytes(std::span<const std::byte> file_start,
                                         int64_t file_bytes) {
  if (file_start.size() < 8 || file_bytes < 8) return corrupt("too short for a safetensors file");
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<uint64_t>(file_start[i]);
  if (length > static_cast<uint64_t>(SafetensorsHeader::kMaxHeaderBytes)) {
    return corrupt(fmt::format("header of {} bytes exceeds the limit of {}", length,
                               SafetensorsHeader::kMaxHeaderBytes));
  }
  if (static_cast<int64_t>(length) > file_bytes - 8) {
    return corrupt(
        fmt::format("truncated: header of {} bytes in a file of {}", length, file_bytes));
  }
  return static_cast<int64_t>(length);
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, int64_t data_bytes) {
  if (!text.starts_with('{')) return corrupt("the header does not begin with '{'");
  HeaderEvents events;
  const JsonLimits limits{.max_bytes = SafetensorsHeader::kMaxHeaderBytes, .max_depth = 8};
  MOTLEY_RETURN_IF_ERROR(parse_json(text, limits, events).with_context("header"));
  SafetensorsHeader header = events.take();
  MOTLEY_RETURN_IF_ERROR(check_duplicates(header.tensors));
  for (const SafetensorsEntry& tensor : header.tensors) {
    MOTLEY_RETURN_IF_ERROR(check_size(tensor));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  MOTLEY_RETURN_IF_ERROR(check_tiling(header.tensors, data_bytes));
  header.data_start = 8 + static_cast<int64_t>(text.size());
  return header;
}

Result<SafetensorsHeader> read_safetensors_header(std::span<const std::byte> file) {
  const auto file_bytes = static_cast<int64_t>(file.size());
  MOTLEY_ASSIGN_OR_RETURN(
      const int64_t length,
      safetensors_header_bytes(file.first(std::min<size_t>(8, file.size())), file_bytes));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8,
                              static_cast<size_t>(length));
  return parse_safetensors_header(text, file_bytes - 8 - length);
}

}  // namespace motley
