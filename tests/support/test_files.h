// Small files for the tests of io/: a temporary directory and raw safetensors images, valid or not.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/context.h"
#include "base/thread_pool.h"

namespace motley {

// A directory that disappears with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "motley-XXXXXX").string();
    MOTLEY_CHECK(mkdtemp(name.data()) != nullptr, "no temporary directory");
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  void write(std::string_view name, std::string_view bytes) const {
    std::ofstream out(*this / name, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    MOTLEY_CHECK(out.good(), "cannot write a test file");
  }
  std::vector<std::byte> read(std::string_view name) const {
    std::ifstream in(*this / name, std::ios::binary);
    MOTLEY_CHECK(in.good(), "cannot read a test file");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }

 private:
  std::string path_;
};

// Eight bytes of length, the header, the data: nothing is checked.
inline std::string raw_safetensors(std::string_view header, std::string_view data) {
  std::string image;
  for (int i = 0; i < 8; ++i) image += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return image.append(header).append(data);
}

inline ThreadPoolOptions test_threads() {
  return {.threads = 2, .pin = false};
}

}  // namespace motley
