#include "engine/verify/expected_tensors.h"

#include <fmt/format.h>

#include <cstring>

#include "io/mapped_file.h"
#include "io/safetensors.h"

namespace motley {
namespace {

template <typename To, typename From>
std::vector<To> copy_values(std::span<const std::byte> bytes) {
  std::vector<From> raw(bytes.size() / sizeof(From));
  std::memcpy(raw.data(), bytes.data(), raw.size() * sizeof(From));
  return std::vector<To>(raw.begin(), raw.end());
}

}  // namespace

Result<ExpectedTensors> ExpectedTensors::open(Context& context, const std::string& path) {
  MOTLEY_ASSIGN_OR_RETURN(File file, File::open(context.faults, path));
  MOTLEY_ASSIGN_OR_RETURN(const MappedFile mapped,
                          MappedFile::map(context.faults, std::move(file)));
  Result<SafetensorsHeader> header = read_safetensors_header(mapped.bytes());
  if (!header.is_ok()) return header.status().with_context(path);
  ExpectedTensors result;
  for (const SafetensorsEntry& entry : header->tensors) {
    const auto bytes = mapped.bytes().subspan(static_cast<size_t>(header->data_start + entry.begin),
                                              static_cast<size_t>(entry.end - entry.begin));
    switch (entry.dtype) {
      case DType::kF32:
        result.floats_[entry.name] = {entry.shape, copy_values<float, float>(bytes)};
        break;
      case DType::kF64:
        result.floats_[entry.name] = {entry.shape, copy_values<float, double>(bytes)};
        break;
      case DType::kI32:
        result.ints_[entry.name] = {entry.shape, copy_values<int32_t, int32_t>(bytes)};
        break;
      case DType::kI64:
        result.ints_[entry.name] = {entry.shape, copy_values<int32_t, int64_t>(bytes)};
        break;
      default:
        return unsupported(fmt::format("{}: tensor {} has type {}, expected outputs are F32 or I32",
                                       path, entry.name, dtype_name(entry.dtype)));
    }
  }
  if (result.labels().empty()) {
    return invalid_argument(path + ": no tensor LABEL.ids, so there is nothing to verify");
  }
  return result;
}

const ExpectedTensors::Floats* ExpectedTensors::floats(const std::string& name) const {
  const auto found = floats_.find(name);
  return found == floats_.end() ? nullptr : &found->second;
}

const ExpectedTensors::Ints* ExpectedTensors::ints(const std::string& name) const {
  const auto found = ints_.find(name);
  return found == ints_.end() ? nullptr : &found->second;
}

std::vector<std::string> ExpectedTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : floats_) names.push_back(name);
  for (const auto& [name, tensor] : ints_) names.push_back(name);
  return names;
}

std::vector<std::string> ExpectedTensors::labels() const {
  std::vector<std::string> labels;
  for (const auto& [name, tensor] : ints_) {
    if (name.ends_with(".ids") && !tensor.values.empty()) {
      labels.push_back(name.substr(0, name.size() - 4));
    }
  }
  return labels;
}

}  // namespace motley
