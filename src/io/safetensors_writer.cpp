#include "io/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "io/safetensors.h"
#include "spec/config_json.h"

namespace motley {
namespace {

constexpr int64_t kAlignment = 64;

// Largest power of two up to 64 that divides `bytes`.
int64_t size_alignment(int64_t bytes) {
  if (bytes == 0) return kAlignment;
  return std::min(kAlignment, int64_t{1} << std::countr_zero(static_cast<uint64_t>(bytes)));
}

// Order of the tensors in the file: most divisible sizes first, otherwise as declared.
std::vector<size_t> file_order(const std::vector<TensorDeclaration>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_alignment(tensors[a].bytes()) > size_alignment(tensors[b].bytes());
  });
  return order;
}

std::string header_text(const std::vector<TensorDeclaration>& tensors,
                        const std::vector<size_t>& order, const std::vector<int64_t>& offsets,
                        const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (size_t i = 0; i < metadata.size(); ++i) {
      text += fmt::format("{}{}:{}", i == 0 ? "" : ",", json_quote(metadata[i].first),
                          json_quote(metadata[i].second));
    }
    text += '}';
  }
  for (const size_t index : order) {
    const TensorDeclaration& tensor = tensors[index];
    text +=
        fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                    text.size() == 1 ? "" : ",", json_quote(tensor.name), dtype_name(tensor.dtype),
                    fmt::join(tensor.shape, ","), offsets[index], offsets[index] + tensor.bytes());
  }
  text += '}';
  text.resize((8 + text.size() + kAlignment - 1) / kAlignment * kAlignment - 8, ' ');
  return text;
}

}  // namespace

int64_t TensorDeclaration::bytes() const {
  int64_t product = dtype_bytes(dtype);
  for (const int64_t dim : shape) product *= dim;
  return product;
}

Result<SafetensorsWriter> SafetensorsWriter::create(
    FaultPoints& faults, const std::string& path, std::vector<TensorDeclaration> tensors,
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::vector<int64_t> offsets(tensors.size());
  int64_t data_bytes = 0;
  const std::vector<size_t> order = file_order(tensors);
  for (const size_t index : order) {
    offsets[index] = data_bytes;
    data_bytes += tensors[index].bytes();
  }
  const std::string text = header_text(tensors, order, offsets, metadata);
  // What the reader would refuse is not written.
  const Result<SafetensorsHeader> check = parse_safetensors_header(text, data_bytes);
  if (!check.is_ok()) return invalid_argument(path + ": " + check.status().message());

  MOTLEY_ASSIGN_OR_RETURN(FileWriter file, FileWriter::create(faults, path));
  SafetensorsWriter writer(std::move(file));
  const auto data_start = static_cast<int64_t>(8 + text.size());
  for (int64_t& offset : offsets) offset += data_start;
  writer.tensors_ = std::move(tensors);
  writer.offsets_ = std::move(offsets);
  writer.data_bytes_ = data_bytes;
  writer.file_bytes_ = data_start + data_bytes;
  MOTLEY_RETURN_IF_ERROR(writer.file_.reserve(writer.file_bytes_));
  std::vector<std::byte> start(static_cast<size_t>(data_start));
  for (size_t i = 0; i < 8; ++i) start[i] = static_cast<std::byte>(text.size() >> (8 * i) & 0xFF);
  std::transform(text.begin(), text.end(), start.begin() + 8,
                 [](char c) { return static_cast<std::byte>(c); });
  MOTLEY_RETURN_IF_ERROR(writer.file_.write_at(0, start));
  return writer;
}

Status SafetensorsWriter::write(size_t index, int64_t offset, std::span<const std::byte> bytes) {
  const TensorDeclaration& tensor = tensors_[index];
  const auto count = static_cast<int64_t>(bytes.size());
  MOTLEY_CHECK(offset >= 0 && count <= tensor.bytes() - offset, "write beyond the tensor");
  MOTLEY_RETURN_IF_ERROR(file_.write_at(offsets_[index] + offset, bytes));
  *written_ += count;
  return Status::ok();
}

Status SafetensorsWriter::finish() {
  if (*written_ != data_bytes_) {
    return invalid_argument(fmt::format("{}: {} of {} declared bytes were written", file_.path(),
                                        written_->load(), data_bytes_));
  }
  return file_.publish();
}

Status write_safetensors_index(FaultPoints& faults, const std::string& directory,
                               const std::map<std::string, std::string>& shard_of_tensor,
                               int64_t total_bytes) {
  std::string text = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total_bytes);
  bool first = true;
  for (const auto& [name, shard] : shard_of_tensor) {
    text += fmt::format("{}\n    {}: {}", first ? "" : ",", json_quote(name), json_quote(shard));
    first = false;
  }
  text += "\n  }\n}\n";
  return write_file(faults, directory + "/model.safetensors.index.json",
                    std::as_bytes(std::span(text)));
}

}  // namespace motley
