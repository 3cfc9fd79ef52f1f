#include "io/gguf_writer.h"

#include <cstring>
#include <string_view>
#include <variant>

#include "base/check.h"

namespace motley {
namespace {

constexpr int64_t kAlignment = 32;

class Output {
 public:
  template <typename T>
  void put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void put_text(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    const auto bytes = std::as_bytes(std::span(text));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void pad(int64_t alignment) {
    while (static_cast<int64_t>(bytes_.size()) % alignment != 0) bytes_.push_back(std::byte{0});
  }

  // A key's type and value.
  void operator()(bool value) {
    put(uint32_t{7});
    put(static_cast<uint8_t>(value));
  }
  void operator()(uint64_t value) {
    const bool fits = value <= UINT32_MAX;
    put(fits ? uint32_t{4} : uint32_t{10});
    if (fits) return put(static_cast<uint32_t>(value));
    put(value);
  }
  void operator()(int64_t value) {
    const bool fits = value >= INT32_MIN && value <= INT32_MAX;
    put(fits ? uint32_t{5} : uint32_t{11});
    if (fits) return put(static_cast<int32_t>(value));
    put(value);
  }
  void operator()(double value) {
    put(uint32_t{6});
    put(static_cast<float>(value));
  }
  void operator()(const std::string& value) {
    put(uint32_t{8});
    put_text(value);
  }
  void operator()(const std::vector<int64_t>& values) {
    begin_array(11, values.size());
    for (const int64_t value : values) put(value);
  }
  void operator()(const std::vector<double>& values) {
    begin_array(6, values.size());
    for (const double value : values) put(static_cast<float>(value));
  }
  void operator()(const std::vector<std::string>& values) {
    begin_array(8, values.size());
    for (const std::string& value : values) put_text(value);
  }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void begin_array(uint32_t type, size_t count) {
    put(uint32_t{9});
    put(type);
    put(static_cast<uint64_t>(count));
  }

  std::vector<std::byte> bytes_;
};

int64_t aligned(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

std::vector<std::byte> make_gguf_head(const GgufMetadata& metadata, int64_t alignment,
                                      std::vector<GgufTensor>* tensors) {
  Output out;
  out.put(uint32_t{0x46554747u});
  out.put(uint32_t{3});
  out.put(static_cast<uint64_t>(tensors->size()));
  out.put(static_cast<uint64_t>(metadata.entries().size()));
  for (const auto& [key, value] : metadata.entries()) {
    out.put_text(key);
    std::visit(out, value);
  }
  int64_t at = 0;
  for (GgufTensor& tensor : *tensors) {
    tensor.begin = at;
    tensor.end = at + tensor.bytes();
    at = aligned(tensor.end, alignment);
    out.put_text(tensor.name);
    out.put(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) {
      out.put(static_cast<uint64_t>(tensor.shape[i]));
    }
    out.put(gguf_type_number(tensor));
    out.put(static_cast<uint64_t>(tensor.begin));
  }
  out.pad(alignment);
  return out.take();
}

Result<GgufWriter> GgufWriter::create(FaultPoints& faults, const std::string& path,
                                      const GgufMetadata& metadata,
                                      std::vector<GgufTensor> tensors) {
  MOTLEY_ASSIGN_OR_RETURN(FileWriter file, FileWriter::create(faults, path));
  GgufWriter writer(std::move(file));
  const std::vector<std::byte> head = make_gguf_head(metadata, kAlignment, &tensors);
  writer.tensors_ = std::move(tensors);
  writer.data_start_ = static_cast<int64_t>(head.size());
  const int64_t end = writer.tensors_.empty() ? 0 : writer.tensors_.back().end;
  writer.file_bytes_ = writer.data_start_ + aligned(end, kAlignment);
  MOTLEY_RETURN_IF_ERROR(writer.file_.reserve(writer.file_bytes_));
  MOTLEY_RETURN_IF_ERROR(writer.file_.write_at(0, head));
  return writer;
}

Status GgufWriter::write(size_t index, int64_t offset, std::span<const std::byte> bytes) {
  const GgufTensor& tensor = tensors_[index];
  MOTLEY_CHECK(offset >= 0 && tensor.begin + offset + std::ssize(bytes) <= tensor.end,
               "bytes beyond their tensor");
  return file_.write_at(data_start_ + tensor.begin + offset, bytes);
}

Status GgufWriter::finish() {
  return file_.publish();
}

}  // namespace motley
