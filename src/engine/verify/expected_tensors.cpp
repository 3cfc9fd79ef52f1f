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
    const Status added = result.add(entry, bytes);
    if (!added.is_ok()) return added.with_context(path);
  }
  const Status complete = result.check_labels();
  if (!complete.is_ok()) return complete.with_context(path);
  return result;
}

Status ExpectedTensors::add(const SafetensorsEntry& entry, std::span<const std::byte> bytes) {
  const auto refuse = [&](const std::string& why) {
    return invalid_argument(fmt::format("tensor {} {}", entry.name, why));
  };
  const std::optional<ExpectedName> parts = parse_expected_name(entry.name);
  if (!parts.has_value()) return refuse("is nothing that can be verified; check its name");
  if (entry.shape.empty() || bytes.empty()) return refuse("is empty or has no dimension");
  const bool integers = entry.dtype == DType::kI32 || entry.dtype == DType::kI64;
  const bool floats = entry.dtype == DType::kF32 || entry.dtype == DType::kF64;
  if (holds_integers(parts->kind) ? !integers : !floats) {
    return refuse(fmt::format("has type {}, wanted is {}", dtype_name(entry.dtype),
                              holds_integers(parts->kind) ? "I32 or I64" : "F32 or F64"));
  }
  if (entry.dtype == DType::kF32) {
    floats_[entry.name] = {entry.shape, copy_values<float, float>(bytes)};
  } else if (entry.dtype == DType::kF64) {
    floats_[entry.name] = {entry.shape, copy_values<float, double>(bytes)};
  } else if (entry.dtype == DType::kI32) {
    ints_[entry.name] = {entry.shape, copy_values<int32_t, int32_t>(bytes)};
  } else {
    const std::vector<int64_t> wide = copy_values<int64_t, int64_t>(bytes);
    for (const int64_t value : wide) {
      if (value < INT32_MIN || value > INT32_MAX) {
        return refuse(fmt::format("holds {}, which is no token or expert", value));
      }
    }
    ints_[entry.name] = {entry.shape, std::vector<int32_t>(wide.begin(), wide.end())};
  }
  return Status::ok();
}

Status ExpectedTensors::check_labels() const {
  std::map<std::string, bool> compared;  // by label: has anything to compare
  for (const std::string& name : names()) {
    const ExpectedName parts = *parse_expected_name(name);
    const std::string label(parts.label);
    if (ints(label + ".ids") == nullptr) {
      return invalid_argument(
          fmt::format("tensor {} belongs to no token ids: there is no {}.ids", name, label));
    }
    compared[label] |= is_compared(parts.kind);
  }
  if (compared.empty()) return invalid_argument("no tensor, so there is nothing to verify");
  for (const auto& [label, any] : compared) {
    if (!any) return invalid_argument(fmt::format("nothing to compare for the ids of {}", label));
  }
  return Status::ok();
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
    if (name.ends_with(".ids")) labels.push_back(name.substr(0, name.size() - 4));
  }
  return labels;
}

bool ExpectedTensors::has(const std::string& label, ExpectedKind kind) const {
  for (const std::string& name : names()) {
    const std::optional<ExpectedName> parts = parse_expected_name(name);
    if (parts.has_value() && parts->label == label && parts->kind == kind) return true;
  }
  return false;
}

}  // namespace motley
