// Cases that the tidy checks must flag, and their nearest neighbours that they must not.
#include <gtest/gtest.h>

#include "tidy/checks.h"
#include "tidy/functions.h"

namespace motley::tidy {
namespace {

std::vector<std::string> rules_broken(const std::string& path, const std::string& text) {
  Findings findings;
  check_file(make_source(path, text), findings);
  std::vector<std::string> rules;
  for (const Finding& finding : findings) rules.push_back(finding.rule);
  return rules;
}

using Rules = std::vector<std::string>;

std::string repeat(const std::string& line, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += line;
  return text;
}

std::string function_of(int lines) {
  return "int f(int x) {\n" + repeat("  ++x;\n", lines - 2) + "}\n";
}

TEST(TidyLayering, AModuleMayNotUseALaterOne) {
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "#include \"engine/engine.h\"\n"), Rules{"layering"});
  EXPECT_EQ(rules_broken("src/base/x.cpp", "#  include \"cli/flags.h\"\n"), Rules{"layering"});
  EXPECT_EQ(rules_broken("src/tensor/x_test.cpp", "#include \"spec/spec.h\"\n"), Rules{"layering"});
  EXPECT_EQ(
      rules_broken("src/engine/x.cpp",
                   "#include \"engine/y.h\"\n#include \"ops/y.h\"\n// #include \"cli/y.h\"\n"),
      Rules{});
}

TEST(TidyLayering, UnknownFoldersAreFlagged) {
  EXPECT_EQ(rules_broken("src/extra/x.cpp", "int x;\n"), Rules{"layering"});
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "#include \"y.h\"\n"), Rules{"layering"});
}

TEST(TidyLayering, CmakeDependenciesFollowTheOrder) {
  EXPECT_EQ(rules_broken("src/ops/CMakeLists.txt", "motley_module(ops DEPS motley_engine)\n"),
            Rules{"layering"});
  EXPECT_EQ(rules_broken("src/ops/CMakeLists.txt", "motley_module(ops DEPS motley_tensor)\n"),
            Rules{});
}

TEST(TidyLibraries, OnlyTheWrapperIncludesALibrary) {
  const std::string pcre = "#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n";
  EXPECT_EQ(rules_broken("src/text/regex.cpp", pcre), Rules{});
  EXPECT_EQ(rules_broken("src/text/tokenizer.cpp", pcre), Rules{"library"});
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "#include <nlohmann/json.hpp>\n"), Rules{"library"});
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "#include <left_pad/pad.hpp>\n"), Rules{"library"});
}

TEST(TidyLibraries, TestLibrariesStayInTests) {
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "#include <gtest/gtest.h>\n"), Rules{"library"});
  EXPECT_EQ(rules_broken("src/ops/x_test.cpp", "#include <gtest/gtest.h>\n"), Rules{});
}

TEST(TidyLibraries, TestsMayLookBehindAWrapper) {
  EXPECT_EQ(rules_broken("src/text/x_test.cpp", "#include <pcre2.h>\n"), Rules{});
  EXPECT_EQ(rules_broken("src/text/test_x.h", "#pragma once\n#include <gtest/gtest.h>\n"), Rules{});
}

TEST(TidyLibraries, StandardAndSystemHeadersAreFree) {
  EXPECT_EQ(rules_broken("src/ops/x.cpp",
                         "#include <vector>\n#include <sys/mman.h>\n#include <immintrin.h>\n"),
            Rules{});
}

TEST(TidySize, LongFiles) {
  EXPECT_EQ(rules_broken("src/ops/x.cpp", repeat("int x;\n", 999)), Rules{});
  EXPECT_EQ(rules_broken("src/ops/x.cpp", repeat("int x;\n", 1000)), Rules{"file size"});
}

TEST(TidySize, LongFunctions) {
  EXPECT_EQ(rules_broken("src/ops/x.cpp", function_of(69)), Rules{});
  EXPECT_EQ(rules_broken("src/ops/x.cpp", function_of(70)), Rules{"function size"});
  EXPECT_EQ(
      rules_broken("src/ops/x.cpp", "namespace a {\nclass B {\n" + function_of(70) + "};\n}\n"),
      Rules{"function size"});
}

TEST(TidySize, WideLinesCountCharactersNotBytes) {
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "//" + repeat("x", 98) + "\n"), Rules{});
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "//" + repeat("x", 99) + "\n"), Rules{"columns"});
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "//" + repeat("\u00e9", 98) + "\n"), Rules{});
}

TEST(TidySize, RawStringsOfTestsHaveNoWidth) {
  const std::string raw = "auto x = R\"(\n" + repeat("x", 120) + "\n)\";\n";
  EXPECT_EQ(rules_broken("src/ops/x_test.cpp", raw), Rules{});
  EXPECT_EQ(rules_broken("src/ops/x.cpp", raw), Rules{"columns"});
  EXPECT_EQ(rules_broken("src/ops/x_test.cpp", "// " + repeat("x", 120) + "\n"), Rules{"columns"});
}

TEST(TidyText, HeadersNeedPragmaOnce) {
  EXPECT_EQ(rules_broken("src/ops/x.h", "// #pragma once\nint f();\n"), Rules{"pragma once"});
  EXPECT_EQ(rules_broken("src/ops/x.h", "#pragma once\nint f();\n"), Rules{});
}

TEST(TidyText, OpenEndsNeedAnIssue) {
  const std::string word = std::string("TO") + "DO";
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "// " + word + ": faster\n"), Rules{"todo"});
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "// " + word + "(#12): faster\n"), Rules{});
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "// " + word + "(me): faster\n"), Rules{"todo"});
}

TEST(TidyText, LibraryModulesDoNotPrint) {
  EXPECT_EQ(rules_broken("src/io/x.cpp", "void f() { std::cout << 1; }\n"), Rules{"print"});
  EXPECT_EQ(rules_broken("src/io/x.cpp", "void f() { printf(\"x\"); }\n"), Rules{"print"});
  EXPECT_EQ(rules_broken("src/io/x.cpp", "void f() { snprintf(a, 1, \"x\"); }\n"), Rules{});
  EXPECT_EQ(rules_broken("src/io/x.cpp", "// printf(\n"), Rules{});
  EXPECT_EQ(rules_broken("src/cli/x.cpp", "void f() { fmt::print(\"x\"); }\n"), Rules{});
}

TEST(TidyText, GeneralModulesNameNoFamily) {
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "const char* x = \"Qwen3.5\";\n"), Rules{"family"});
  EXPECT_EQ(rules_broken("src/ops/x.cpp", "// Source: the Qwen3.5 report\n"), Rules{});
  EXPECT_EQ(rules_broken("src/engine/x.cpp", "int glm_rows;\n"), Rules{"family"});
  EXPECT_EQ(rules_broken("src/spec/x.cpp", "int glm_rows;\n"), Rules{});
  EXPECT_EQ(rules_broken("src/engine/x_test.cpp", "int glm_rows;\n"), Rules{});
}

TEST(TidyFunctions, FindsBodiesAndTheirNames) {
  const auto functions = find_functions(make_source("x.cpp",
                                                    R"x(
namespace a {
enum class E { kOne };
const std::vector<int> kTable = {1, 2};
struct B {
  explicit B(int x)
      : a_{x}, b_(x) {
    if (x) { use("}{", '{'); }
  }
  bool operator==(const B&) const { return true; }
  int a_ = 0;
};
#define M(x) \
  do {       \
  } while (x)
template <typename T>
auto f(T x) -> int {
  return R"({{)" != x;
}
auto lambda = [](int x) { return x; };
}
)x"));
  ASSERT_EQ(functions.size(), 3U);
  EXPECT_EQ(functions[0].first_line, 6);
  EXPECT_EQ(functions[0].last_line, 9);
  EXPECT_EQ(functions[1].first_line, 10);
  EXPECT_EQ(functions[2].name, "f");
  EXPECT_EQ(functions[2].last_line - functions[2].first_line, 3);
}

TEST(TidyTree, MeasuresTestsAndMedian) {
  const TreeReport report = measure({make_source("src/a/x.cpp", repeat("x\n", 60)),
                                     make_source("src/a/x.h", repeat("x\n", 20)),
                                     make_source("src/a/x_test.cpp", repeat("x\n", 20))});
  EXPECT_EQ(report.lines, 100);
  EXPECT_EQ(report.median_lines, 20);
  EXPECT_DOUBLE_EQ(report.test_share(), 0.2);
  Findings findings;
  check_tree(report, findings);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].rule, "test share");
}

TEST(TidyTree, CasesAreTestsButNotFilesOfCode) {
  const TreeReport report = measure({make_source("src/a/x.cpp", repeat("x\n", 60)),
                                     make_source("tests/cases/a/x.case", repeat("x\n", 40))});
  EXPECT_EQ(report.files, 1);
  EXPECT_DOUBLE_EQ(report.test_share(), 0.4);
  EXPECT_EQ(rules_broken("tests/cases/a/x.case", repeat("x", 200)), Rules{});
}

TEST(TidyTree, AnEmptyTreeIsNotClean) {
  Findings findings;
  check_tree(measure({}), findings);
  EXPECT_EQ(findings.size(), 1U);
}

TEST(TidyTree, LongMedianIsFlagged) {
  Findings findings;
  check_tree(measure({make_source("src/a/x_test.cpp", repeat("x\n", 200))}), findings);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].rule, "median file");
}

}  // namespace
}  // namespace motley::tidy
