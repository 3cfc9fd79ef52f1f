// What Jinja2 3.1 gave for seeded expressions and template fragments (scripts/diff-template
// --freeze), so that agreement is checked where Jinja2 is not installed.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/jinja_test_util.h"

namespace motley::jinja {
namespace {

using Json = nlohmann::ordered_json;

// Line 1: the context. Each other line: [template, output], null for an error.
int check_corpus(const std::string& name) {
  std::ifstream file(std::string(MOTLEY_SOURCE_DIR "/tests/cases/jinja/") + name);
  std::string context;
  std::getline(file, context);
  int checked = 0;
  for (std::string line; std::getline(file, line); ++checked) {
    const Json entry = Json::parse(line);
    const std::string source = entry[0].get<std::string>();
    const std::string output = render(source, context);
    if (entry[1].is_null()) {
      EXPECT_EQ(output.substr(0, 12), "error: line ") << source << "\n" << output;
    } else {
      EXPECT_EQ(output, entry[1].get<std::string>()) << source;
    }
  }
  return checked;
}

TEST(JinjaCorpus, Expressions) {
  EXPECT_GE(check_corpus("expressions.jsonl"), 450);
}

TEST(JinjaCorpus, Fragments) {
  EXPECT_GE(check_corpus("fragments.jsonl"), 280);
}

}  // namespace
}  // namespace motley::jinja
