// Runs tests/cases/jinja/*.case: a template, its data, and the output or the error expected.
//
// A file has comment lines with '#', then the parts "--- template", "--- context" and "--- output"
// or "--- error"; a part is the lines below its head without the last newline.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "text/jinja_test_util.h"

namespace motley::jinja {
namespace {

std::map<std::string, std::string> read_case(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string text = "\n" + stream.str();
  std::map<std::string, std::string> parts;
  for (std::size_t head = text.find("\n--- "); head != std::string::npos;) {
    const std::size_t name_end = text.find('\n', head + 1);
    const std::size_t next = text.find("\n--- ", name_end);
    const std::size_t end = next == std::string::npos ? text.size() - 1 : next;
    const std::size_t begin = std::min(name_end + 1, end);
    parts[text.substr(head + 5, name_end - head - 5)] = text.substr(begin, end - begin);
    head = next;
  }
  return parts;
}

std::vector<std::filesystem::path> case_files() {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = MOTLEY_SOURCE_DIR "/tests/cases/jinja";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".case") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class JinjaCase : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(JinjaCase, RendersAsStated) {
  const auto parts = read_case(GetParam());
  ASSERT_TRUE(parts.contains("template") && parts.contains("context"));
  const std::string output = render(parts.at("template"), parts.at("context"));
  if (parts.contains("error")) {
    EXPECT_EQ(output, "error: " + parts.at("error"));
  } else {
    ASSERT_TRUE(parts.contains("output"));
    EXPECT_EQ(output, parts.at("output"));
  }
}

INSTANTIATE_TEST_SUITE_P(Files, JinjaCase, testing::ValuesIn(case_files()),
                         [](const auto& file) { return file.param.stem().string(); });

TEST(JinjaCaseFiles, AreThere) {
  EXPECT_GE(case_files().size(), 40U);
}

}  // namespace
}  // namespace motley::jinja
