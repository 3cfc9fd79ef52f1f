#include "engine/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>

#include "spec/config_json.h"

namespace motley {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kIndent = 18;

// `text` in lines that begin behind the topic.
std::string wrapped(std::string_view text) {
  std::string out;
  size_t column = kColumns;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (column + 1 + word.size() > kColumns) {
      out += out.empty() ? "" : "\n" + std::string(kIndent, ' ');
      column = kIndent;
    } else {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

std::string_view health_name(Health health) {
  switch (health) {
    case Health::kGood:
      return "ok";
    case Health::kSlow:
      return "slow";
    case Health::kBroken:
      return "BAD";
  }
  return "";
}

Health overall(const std::vector<Finding>& findings) {
  Health worst = Health::kGood;
  for (const Finding& finding : findings) worst = std::max(worst, finding.health);
  return worst;
}

std::string findings_table(const std::vector<Finding>& findings) {
  std::string text;
  const std::string indent(kIndent, ' ');
  for (const Finding& finding : findings) {
    text += fmt::format("{:<13}{:<5}{}\n", finding.topic, health_name(finding.health),
                        wrapped(finding.fact));
    text += indent + wrapped(finding.meaning) + "\n";
    if (!finding.remedy.empty()) text += indent + wrapped("-> " + finding.remedy) + "\n";
  }
  switch (overall(findings)) {
    case Health::kGood:
      return text + "\nNothing is in the way of motley here.\n";
    case Health::kSlow:
      return text + "\nmotley works here; what is marked 'slow' costs speed.\n";
    case Health::kBroken:
      return text + "\nmotley cannot work here until what is marked 'BAD' is mended.\n";
  }
  return text;
}

std::string findings_json(const std::vector<Finding>& findings) {
  std::string text = fmt::format("{{\n  \"health\": {},\n  \"findings\": [",
                                 json_quote(health_name(overall(findings))));
  for (const Finding& finding : findings) {
    text += fmt::format(
        "{}\n    {{\"topic\": {}, \"health\": {},\n     \"fact\": {},\n     \"meaning\": {},\n"
        "     \"remedy\": {},\n     \"details\": {{{}}}}}",
        &finding == findings.data() ? "" : ",", json_quote(finding.topic),
        json_quote(health_name(finding.health)), json_quote(finding.fact),
        json_quote(finding.meaning), json_quote(finding.remedy), finding.details);
  }
  return text + "\n  ]\n}\n";
}

}  // namespace motley
