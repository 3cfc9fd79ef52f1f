#include "engine/verify/verify_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

namespace motley {
namespace {

constexpr double kMaxExcusedShare = 0.005;

// "short.layer.3.out" -> "short.layer.*.out", so that equal tensors of all layers share a line.
std::string fold_numbers(const std::string& name) {
  std::string folded;
  size_t begin = 0;
  while (begin <= name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool is_number = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    if (!folded.empty()) folded += '.';
    folded += is_number ? "*" : part;
    begin = end + 1;
  }
  return folded;
}

std::string json_escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      escaped += '\\';
      escaped += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      escaped += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

bool VerifyReport::passed() const {
  const bool rows_pass =
      std::all_of(rows.begin(), rows.end(), [](const VerifyRow& row) { return row.passed; });
  const double allowed = kMaxExcusedShare * static_cast<double>(routed_rows);
  return rows_pass && static_cast<double>(excused_rows) <= allowed;
}

std::string VerifyReport::table() const {
  std::vector<VerifyRow> lines;
  std::map<std::string, size_t> line_of;
  for (const VerifyRow& row : rows) {
    const std::string folded = fold_numbers(row.tensor);
    const std::string key = row.profile + "/" + folded + (row.passed ? "" : "/" + row.tensor);
    const auto [found, added] = line_of.try_emplace(key, lines.size());
    if (added) {
      lines.push_back(row);
      if (row.passed) lines.back().tensor = folded;
      continue;
    }
    VerifyRow& line = lines[found->second];
    line.compared += row.compared;
    line.error = std::max(line.error, row.error);
    line.excused += row.excused;
  }
  std::string text = fmt::format("{:9} {:28} {:>9} {:>10} {:>8} {:>7}  {}\n", "profile", "tensor",
                                 "compared", "largest", "limit", "excused", "result");
  for (const VerifyRow& line : lines) {
    text += fmt::format("{:9} {:28} {:>9} {:>10.2e} {:>8.1e} {:>7}  {}\n", line.profile,
                        line.tensor, line.compared, line.error, line.limit, line.excused,
                        line.passed ? "ok" : "OFF: " + line.first_off);
  }
  text +=
      fmt::format("near ties: {} of {} rows excused (limit 0.5 %)\n", excused_rows, routed_rows);
  if (fast_alone) {
    const std::string keys =
        fast_forced_keys > 0 ? fmt::format(" and the keys of {} rows", fast_forced_keys) : "";
    text += fmt::format(
        "fast with {} routing choices of the reference, each decided by less than {}{}; on its "
        "own the mean loss differs by {:.1e} and the greatest logit on {:.1f} % of rows\n",
        fast_forced_rows, keys.empty() ? "1/512" : "1/128", keys, fast_alone->loss,
        100 * fast_alone->rows);
  }
  const auto off =
      std::find_if(rows.begin(), rows.end(), [](const VerifyRow& row) { return !row.passed; });
  text += off != rows.end() ? fmt::format("first off: {} ({})\n", off->tensor, off->first_off)
          : passed()        ? "all tensors within their limits\n"
                            : "too many excused rows\n";
  return text;
}

std::string VerifyReport::json() const {
  std::string text = fmt::format(
      "{{\"passed\": {}, \"routed_rows\": {}, \"excused_rows\": {}, "
      "\"fast_forced_rows\": {}, \"fast_forced_keys\": {}, ",
      passed(), routed_rows, excused_rows, fast_forced_rows, fast_forced_keys);
  if (fast_alone) {
    text += fmt::format("\"fast_alone\": {{\"mean_loss\": {}, \"rows\": {}}}, ", fast_alone->loss,
                        fast_alone->rows);
  }
  text += "\"tensors\": [";
  for (size_t i = 0; i < rows.size(); ++i) {
    const VerifyRow& row = rows[i];
    text += fmt::format(
        "{}\n  {{\"profile\": \"{}\", \"tensor\": \"{}\", \"compared\": {}, \"error\": {:.6e}, "
        "\"limit\": {:.1e}, \"excused\": {}, \"passed\": {}, \"first_off\": \"{}\"}}",
        i == 0 ? "" : ",", json_escape(row.profile), json_escape(row.tensor), row.compared,
        row.error, row.limit, row.excused, row.passed, json_escape(row.first_off));
  }
  return text + "\n]}\n";
}

}  // namespace motley
