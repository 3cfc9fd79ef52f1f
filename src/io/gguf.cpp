#include "io/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "spec/config_json.h"

namespace motley {
namespace {

// Value types of keys.
enum ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Fewest bytes of an element in the file; 0 for a type that is not known.
int64_t value_bytes(uint32_t type) {
  constexpr std::array<int64_t, 13> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return type < kBytes.size() ? kBytes[type] : 0;
}

struct ElementType {
  uint32_t number;
  std::string_view name;
  std::optional<DType> dtype;     // for a plain one that is read
  std::optional<GgufType> block;  // for a quantised one that is read
};

// The element types of ggml; those with neither dtype nor block are refused by name.
constexpr std::array kElementTypes = {
    ElementType{0, "F32", DType::kF32, std::nullopt},
    ElementType{1, "F16", DType::kF16, std::nullopt},
    ElementType{2, "Q4_0", std::nullopt, GgufType::kQ4_0},
    ElementType{3, "Q4_1", std::nullopt, std::nullopt},
    ElementType{6, "Q5_0", std::nullopt, std::nullopt},
    ElementType{7, "Q5_1", std::nullopt, std::nullopt},
    ElementType{8, "Q8_0", std::nullopt, GgufType::kQ8_0},
    ElementType{9, "Q8_1", std::nullopt, std::nullopt},
    ElementType{10, "Q2_K", std::nullopt, std::nullopt},
    ElementType{11, "Q3_K", std::nullopt, std::nullopt},
    ElementType{12, "Q4_K", std::nullopt, GgufType::kQ4K},
    ElementType{13, "Q5_K", std::nullopt, GgufType::kQ5K},
    ElementType{14, "Q6_K", std::nullopt, GgufType::kQ6K},
    ElementType{15, "Q8_K", std::nullopt, std::nullopt},
    ElementType{16, "IQ2_XXS", std::nullopt, std::nullopt},
    ElementType{17, "IQ2_XS", std::nullopt, std::nullopt},
    ElementType{18, "IQ3_XXS", std::nullopt, std::nullopt},
    ElementType{19, "IQ1_S", std::nullopt, std::nullopt},
    ElementType{20, "IQ4_NL", std::nullopt, std::nullopt},
    ElementType{21, "IQ3_S", std::nullopt, std::nullopt},
    ElementType{22, "IQ2_S", std::nullopt, std::nullopt},
    ElementType{23, "IQ4_XS", std::nullopt, std::nullopt},
    ElementType{24, "I8", std::nullopt, std::nullopt},
    ElementType{25, "I16", std::nullopt, std::nullopt},
    ElementType{26, "I32", std::nullopt, std::nullopt},
    ElementType{27, "I64", std::nullopt, std::nullopt},
    ElementType{28, "F64", std::nullopt, std::nullopt},
    ElementType{29, "IQ1_M", std::nullopt, std::nullopt},
    ElementType{30, "BF16", DType::kBf16, std::nullopt},
    ElementType{34, "TQ1_0", std::nullopt, std::nullopt},
    ElementType{35, "TQ2_0", std::nullopt, std::nullopt},
    ElementType{39, "MXFP4", std::nullopt, std::nullopt},
    ElementType{40, "NVFP4", std::nullopt, std::nullopt},
};

const ElementType* find_element_type(uint32_t number) {
  for (const ElementType& type : kElementTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

std::string readable_types() {
  std::vector<std::string_view> names;
  for (const ElementType& type : kElementTypes) {
    if (type.dtype || type.block) names.push_back(type.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

int64_t aligned(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Reads forward; every read is checked against what is left.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file) : file_(file) {}

  int64_t at() const { return at_; }
  int64_t left() const { return static_cast<int64_t>(file_.size()) - at_; }

  template <typename T>
  Result<T> scalar() {
    if (left() < static_cast<int64_t>(sizeof(T))) return truncated();
    T value;
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    at_ += static_cast<int64_t>(sizeof(T));
    return value;
  }

  Result<std::string> text(int64_t most) {
    MOTLEY_ASSIGN_OR_RETURN(const uint64_t length, scalar<uint64_t>());
    if (length > static_cast<uint64_t>(most)) {
      return corrupt(fmt::format("a text of {} bytes exceeds the limit of {}", length, most));
    }
    if (static_cast<int64_t>(length) > left()) return truncated();
    std::string value(reinterpret_cast<const char*>(file_.data()) + at_,
                      static_cast<size_t>(length));
    at_ += static_cast<int64_t>(length);
    return value;
  }

  Status truncated() const {
    return corrupt(
        fmt::format("truncated: the head goes beyond the {} bytes of the file", file_.size()));
  }

 private:
  std::span<const std::byte> file_;
  int64_t at_ = 0;
};

// One number of a key or array, as its kind.
using Number = std::variant<bool, uint64_t, int64_t, double>;

template <typename T, typename Kind>
Result<Number> number_as(Cursor& cursor) {
  MOTLEY_ASSIGN_OR_RETURN(const T value, cursor.scalar<T>());
  return Number(static_cast<Kind>(value));
}

Result<Number> read_number(Cursor& cursor, uint32_t type) {
  switch (type) {
    case kUint8:
      return number_as<uint8_t, uint64_t>(cursor);
    case kInt8:
      return number_as<int8_t, int64_t>(cursor);
    case kUint16:
      return number_as<uint16_t, uint64_t>(cursor);
    case kInt16:
      return number_as<int16_t, int64_t>(cursor);
    case kUint32:
      return number_as<uint32_t, uint64_t>(cursor);
    case kInt32:
      return number_as<int32_t, int64_t>(cursor);
    case kUint64:
      return number_as<uint64_t, uint64_t>(cursor);
    case kInt64:
      return number_as<int64_t, int64_t>(cursor);
    case kFloat32:
      return number_as<float, double>(cursor);
    case kFloat64:
      return number_as<double, double>(cursor);
    default: {
      MOTLEY_ASSIGN_OR_RETURN(const uint8_t flag, cursor.scalar<uint8_t>());
      if (flag > 1) return corrupt(fmt::format("a boolean of {}", flag));
      return Number(flag == 1);
    }
  }
}

// kUnsupported for a natural number that int64 does not hold.
Result<int64_t> whole(const Number& number) {
  if (const auto* natural = std::get_if<uint64_t>(&number)) {
    if (*natural > uint64_t{INT64_MAX}) return corrupt("an array holds a number above 2^63");
    return static_cast<int64_t>(*natural);
  }
  if (const auto* flag = std::get_if<bool>(&number)) return int64_t{*flag};
  return std::get<int64_t>(number);
}

Result<GgufValue> read_array(Cursor& cursor) {
  MOTLEY_ASSIGN_OR_RETURN(const uint32_t type, cursor.scalar<uint32_t>());
  MOTLEY_ASSIGN_OR_RETURN(const uint64_t count, cursor.scalar<uint64_t>());
  if (type == kArray) return unsupported("an array of arrays");
  const int64_t bytes = value_bytes(type);
  if (bytes == 0) return corrupt(fmt::format("unknown value type {} in an array", type));
  if (count > static_cast<uint64_t>(GgufHeader::kMaxElements)) {
    return corrupt(fmt::format("an array of {} elements exceeds the limit of {}", count,
                               GgufHeader::kMaxElements));
  }
  const auto size = static_cast<size_t>(count);
  if (static_cast<int64_t>(count) > cursor.left() / bytes) return cursor.truncated();
  if (type == kString) {
    std::vector<std::string> texts;
    texts.reserve(size);
    for (size_t i = 0; i < size; ++i) {
      MOTLEY_ASSIGN_OR_RETURN(std::string text, cursor.text(GgufHeader::kMaxTextBytes));
      texts.push_back(std::move(text));
    }
    return GgufValue(std::move(texts));
  }
  const bool real = type == kFloat32 || type == kFloat64;
  std::vector<double> reals;
  std::vector<int64_t> integers;
  real ? reals.reserve(size) : integers.reserve(size);
  for (size_t i = 0; i < size; ++i) {
    MOTLEY_ASSIGN_OR_RETURN(const Number number, read_number(cursor, type));
    if (real) {
      reals.push_back(std::get<double>(number));
    } else {
      MOTLEY_ASSIGN_OR_RETURN(const int64_t value, whole(number));
      integers.push_back(value);
    }
  }
  if (real) return GgufValue(std::move(reals));
  return GgufValue(std::move(integers));
}

Result<GgufValue> read_value(Cursor& cursor) {
  MOTLEY_ASSIGN_OR_RETURN(const uint32_t type, cursor.scalar<uint32_t>());
  if (type == kArray) return read_array(cursor);
  if (type == kString) {
    MOTLEY_ASSIGN_OR_RETURN(std::string text, cursor.text(GgufHeader::kMaxTextBytes));
    return GgufValue(std::move(text));
  }
  if (value_bytes(type) == 0) return corrupt(fmt::format("unknown value type {}", type));
  MOTLEY_ASSIGN_OR_RETURN(const Number number, read_number(cursor, type));
  return std::visit([](const auto& value) { return GgufValue(value); }, number);
}

Status read_keys(Cursor& cursor, uint64_t count, GgufMetadata* metadata) {
  for (uint64_t i = 0; i < count; ++i) {
    Result<std::string> key = cursor.text(GgufHeader::kMaxNameBytes);
    if (!key.is_ok()) return key.status().with_context(fmt::format("key {}", i));
    Result<GgufValue> value = read_value(cursor);
    if (!value.is_ok()) {
      return value.status().with_context(fmt::format("key {}", json_excerpt(*key)));
    }
    metadata->add(std::move(*key), std::move(*value));
  }
  return metadata->sort();
}

Status set_element_type(uint32_t number, GgufTensor* tensor) {
  const ElementType* type = find_element_type(number);
  if (type == nullptr || (!type->dtype && !type->block)) {
    return unsupported(
        fmt::format("element type {} is not supported; this build reads {}",
                    type == nullptr ? fmt::format("number {}", number) : std::string(type->name),
                    readable_types()));
  }
  tensor->dtype = type->dtype.value_or(DType::kU8);
  tensor->block = type->block;
  return Status::ok();
}

// Bytes of the tensor, or an error for a shape that no memory could hold.
Result<int64_t> tensor_bytes(const GgufTensor& tensor) {
  int64_t values = 1;
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(values, dim, &values)) {
      return corrupt(fmt::format("shape [{}] overflows", fmt::join(tensor.shape, ", ")));
    }
  }
  int64_t per_block = 1;
  int64_t bytes = dtype_bytes(tensor.dtype);
  if (tensor.block) {
    const GgufBlockFacts& facts = gguf_facts(*tensor.block);
    per_block = facts.values;
    bytes = facts.bytes;
    if (tensor.shape.back() % per_block != 0) {
      return corrupt(fmt::format("rows of {} values are no whole blocks of {}", tensor.shape.back(),
                                 facts.name));
    }
  }
  if (__builtin_mul_overflow(values / per_block, bytes, &bytes)) {
    return corrupt(fmt::format("shape [{}] overflows", fmt::join(tensor.shape, ", ")));
  }
  return bytes;
}

Status read_tensor(Cursor& cursor, GgufTensor* tensor) {
  MOTLEY_ASSIGN_OR_RETURN(const uint32_t rank, cursor.scalar<uint32_t>());
  if (rank < 1 || rank > GgufHeader::kMaxRank) {
    return corrupt(fmt::format("{} dimensions, 1 to {} are possible", rank, GgufHeader::kMaxRank));
  }
  for (uint32_t i = 0; i < rank; ++i) {
    MOTLEY_ASSIGN_OR_RETURN(const uint64_t dim, cursor.scalar<uint64_t>());
    if (dim < 1 || dim > uint64_t{1} << 53) {
      return corrupt(fmt::format("dimension {} of {}", i, dim));
    }
    tensor->shape.insert(tensor->shape.begin(), static_cast<int64_t>(dim));
  }
  MOTLEY_ASSIGN_OR_RETURN(const uint32_t type, cursor.scalar<uint32_t>());
  MOTLEY_ASSIGN_OR_RETURN(const uint64_t offset, cursor.scalar<uint64_t>());
  MOTLEY_RETURN_IF_ERROR(set_element_type(type, tensor));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t bytes, tensor_bytes(*tensor));
  if (offset > uint64_t{1} << 53 || bytes > int64_t{1} << 53) {
    return corrupt(fmt::format("{} bytes at offset {} are in no file", bytes, offset));
  }
  tensor->begin = static_cast<int64_t>(offset);
  tensor->end = tensor->begin + bytes;
  return Status::ok();
}

Status read_tensors(Cursor& cursor, uint64_t count, std::vector<GgufTensor>* tensors) {
  tensors->reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    Result<std::string> name = cursor.text(GgufHeader::kMaxNameBytes);
    if (!name.is_ok()) return name.status().with_context(fmt::format("name of tensor {}", i));
    GgufTensor tensor{.name = std::move(*name)};
    const Status status = read_tensor(cursor, &tensor);
    if (!status.is_ok()) {
      return status.with_context(fmt::format("tensor {}", json_excerpt(tensor.name)));
    }
    tensors->push_back(std::move(tensor));
  }
  return Status::ok();
}

Status check_names(const std::vector<GgufTensor>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const GgufTensor& tensor : tensors) names.emplace_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto repeated = std::adjacent_find(names.begin(), names.end());
  if (repeated == names.end()) return Status::ok();
  return corrupt(fmt::format("duplicate tensor {}", json_excerpt(*repeated)));
}

// `tensors` in order of their bytes lie one after the other, padded to the alignment.
Status check_tiling(const std::vector<GgufTensor>& tensors, int64_t alignment, int64_t data_bytes) {
  int64_t covered = 0;
  int64_t end = 0;
  for (const GgufTensor& tensor : tensors) {
    const std::string name = json_excerpt(tensor.name);
    if (tensor.end > data_bytes) {
      return corrupt(fmt::format("truncated: tensor {} ends at data byte {} of {}", name,
                                 tensor.end, data_bytes));
    }
    if (tensor.begin != covered) {
      return corrupt(fmt::format(
          "tensor {}: begins at data byte {}, {} {} with alignment {}", name, tensor.begin,
          tensor.begin < covered ? "overlaps what ends at" : "leaves a hole after", covered,
          alignment));
    }
    end = tensor.end;
    covered = aligned(end, alignment);
  }
  if (data_bytes > covered) {
    return corrupt(fmt::format("{} bytes after the last tensor", data_bytes - end));
  }
  return Status::ok();
}

Status check_version(uint32_t version) {
  if (version == 2 || version == 3) return Status::ok();
  if (version != 0 && (version & 0xFFFFu) == 0) {
    return unsupported("a big-endian file; convert it on such a machine, or download another");
  }
  return unsupported(fmt::format("version {} is not supported, only 2 and 3", version));
}

}  // namespace

Result<GgufHeader> read_gguf_header(std::span<const std::byte> file) {
  Cursor cursor(file);
  MOTLEY_ASSIGN_OR_RETURN(const uint32_t magic, cursor.scalar<uint32_t>());
  if (magic != 0x46554747u) return corrupt("does not begin with GGUF");
  GgufHeader header;
  MOTLEY_ASSIGN_OR_RETURN(const uint32_t version, cursor.scalar<uint32_t>());
  MOTLEY_RETURN_IF_ERROR(check_version(version));
  header.version = version;
  MOTLEY_ASSIGN_OR_RETURN(const uint64_t tensors, cursor.scalar<uint64_t>());
  MOTLEY_ASSIGN_OR_RETURN(const uint64_t keys, cursor.scalar<uint64_t>());
  // A key has at least 13 bytes, a tensor 32: a small file cannot claim many.
  if (keys > static_cast<uint64_t>(std::min(GgufHeader::kMaxKeys, cursor.left() / 13))) {
    return corrupt(fmt::format("{} keys in a file of {} bytes", keys, file.size()));
  }
  if (tensors > static_cast<uint64_t>(std::min(GgufHeader::kMaxTensors, cursor.left() / 32))) {
    return corrupt(fmt::format("{} tensors in a file of {} bytes", tensors, file.size()));
  }
  MOTLEY_RETURN_IF_ERROR(read_keys(cursor, keys, &header.metadata));
  MOTLEY_RETURN_IF_ERROR(read_tensors(cursor, tensors, &header.tensors));
  MOTLEY_RETURN_IF_ERROR(check_names(header.tensors));
  MOTLEY_ASSIGN_OR_RETURN(header.alignment, header.metadata.integer_or("general.alignment", 32, 1,
                                                                       GgufHeader::kMaxAlignment));
  if (!std::has_single_bit(static_cast<uint64_t>(header.alignment))) {
    return corrupt(fmt::format("key 'general.alignment': {} is no power of two", header.alignment));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const GgufTensor& a, const GgufTensor& b) { return a.begin < b.begin; });
  header.data_start = aligned(cursor.at(), header.alignment);
  const int64_t data_bytes =
      std::max<int64_t>(0, static_cast<int64_t>(file.size()) - header.data_start);
  MOTLEY_RETURN_IF_ERROR(check_tiling(header.tensors, header.alignment, data_bytes));
  return header;
}

int64_t GgufTensor::bytes() const {
  int64_t values = 1;
  for (const int64_t dim : shape) values *= dim;
  return block ? gguf_row_bytes(*block, values) : values * dtype_bytes(dtype);
}

uint32_t gguf_type_number(const GgufTensor& tensor) {
  for (const ElementType& type : kElementTypes) {
    if (tensor.block ? type.block == tensor.block : type.dtype == tensor.dtype) return type.number;
  }
  MOTLEY_CHECK(false, "an element type that GGUF files of this build do not have");
  return 0;
}

}  // namespace motley
