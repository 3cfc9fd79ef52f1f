// gguf_probe FILE      prints keys and tensors of a GGUF file as JSON, for scripts/diff-gguf
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "io/gguf.h"
#include "io/mapped_file.h"
#include "spec/config_json.h"

namespace motley {
namespace {

struct AsJson {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(uint64_t value) const { return fmt::format("\"{}\"", value); }
  std::string operator()(int64_t value) const { return fmt::format("\"{}\"", value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return json_quote(value); }
  template <typename T>
  std::string operator()(const std::vector<T>& values) const {
    std::string list;
    for (const T& value : values) list += (list.empty() ? "" : ",") + (*this)(value);
    return "[" + list + "]";
  }
};

int print_head(const std::string& path) {
  FaultPoints faults;
  Result<File> file = File::open(faults, path);
  Result<MappedFile> mapped = file.is_ok() ? MappedFile::map(faults, std::move(file).value())
                                           : Result<MappedFile>(file.status());
  const Result<GgufHeader> header =
      mapped.is_ok() ? read_gguf_header(mapped->bytes()) : Result<GgufHeader>(mapped.status());
  if (!header.is_ok()) {
    fmt::print(stderr, "{}: {}\n", path, header.status().message());
    return 1;
  }
  std::string keys;
  for (const auto& [key, value] : header->metadata.entries()) {
    keys += fmt::format("{}{}:{}", keys.empty() ? "" : ",", json_quote(key),
                        std::visit(AsJson(), value));
  }
  std::string tensors;
  for (const GgufTensor& tensor : header->tensors) {
    tensors += fmt::format(R"({}{{"name":{},"shape":[{}],"type":{},"offset":{}}})",
                           tensors.empty() ? "" : ",", json_quote(tensor.name),
                           fmt::join(tensor.shape.rbegin(), tensor.shape.rend(), ","),
                           gguf_type_number(tensor), tensor.begin);
  }
  fmt::print(R"({{"version":{},"data":{},"keys":{{{}}},"tensors":[{}]}})", header->version,
             header->data_start, keys, tensors);
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: gguf_probe FILE\n", stderr);
    return 2;
  }
  return motley::print_head(argv[1]);
}
