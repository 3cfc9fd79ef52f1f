#include "engine/draft/draft_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "io/kept_results.h"
#include "spec/config_json.h"

namespace motley {
namespace {

constexpr std::string_view kFormat = "motley-drafts-1";
constexpr size_t kMostRecords = 200;
constexpr int64_t kMostCount = int64_t{1} << 40;
// Tries from which a rate says something.
constexpr int64_t kLeastRun = 50;
constexpr int64_t kLeastRecord = 200;
constexpr int64_t kFullRecord = 20000;  // tries; then it is halved, so that old runs fade
// The first draft of a layer that works is right in 0.6 of all cases and more on any text; broken
// ones in the field were at 0.00 to 0.25.
constexpr double kFloor = 0.3;
// Texts differ; beyond this and three standard deviations they do not.
constexpr double kBand = 0.15;

Result<DraftRecord> parse_record(const ConfigObject& member) {
  DraftRecord record;
  MOTLEY_ASSIGN_OR_RETURN(record.key, member.text("key"));
  MOTLEY_ASSIGN_OR_RETURN(const auto tried, member.integers("tried", 0, kMostCount));
  MOTLEY_ASSIGN_OR_RETURN(const auto accepted, member.integers("accepted", 0, kMostCount));
  if (tried.size() != kMostDrafts || accepted.size() != kMostDrafts) {
    return member.error("tried", "not one count for each place");
  }
  for (size_t place = 0; place < tried.size(); ++place) {
    if (accepted[place] > tried[place]) return member.error("accepted", "more than tried");
  }
  std::copy(tried.begin(), tried.end(), record.stats.tried.begin());
  std::copy(accepted.begin(), accepted.end(), record.stats.accepted.begin());
  return record;
}

}  // namespace

std::string draft_record_key(const LoadedModel& model) {
  const WeightMatrix& matrix = model.weights.matrix(model.spec.drafts.front().projection);
  const auto bytes = static_cast<size_t>(matrix.rows * matrix.codes.row_bytes);
  return fmt::format("{} {} {:016x}", model.spec.family, bytes,
                     hash_bytes({matrix.codes.data, bytes}));
}

Result<std::vector<DraftRecord>> parse_draft_records(std::string_view text, std::string name) {
  MOTLEY_ASSIGN_OR_RETURN(const ConfigJson json, parse_kept(text, std::move(name), kFormat));
  MOTLEY_ASSIGN_OR_RETURN(const auto members,
                          object_list(json.root(), "models", kMostRecords, json.file()));
  std::vector<DraftRecord> all;
  for (const ConfigObject& member : members) {
    MOTLEY_ASSIGN_OR_RETURN(DraftRecord record, parse_record(member));
    all.push_back(std::move(record));
  }
  return all;
}

std::string format_draft_records(std::span<const DraftRecord> all) {
  std::string text = fmt::format("{{\"format\": {}, \"models\": [", json_quote(kFormat));
  for (const DraftRecord& record : all) {
    text +=
        fmt::format("{}\n {{\"key\": {}, \"tried\": [{}], \"accepted\": [{}]}}",
                    &record == all.data() ? "" : ",", json_quote(record.key),
                    fmt::join(record.stats.tried, ", "), fmt::join(record.stats.accepted, ", "));
  }
  return text + "\n]}\n";
}

Result<std::vector<DraftRecord>> load_draft_records(FaultPoints& faults, const std::string& path) {
  if (path.empty()) return std::vector<DraftRecord>{};
  MOTLEY_ASSIGN_OR_RETURN(const auto text, read_kept(faults, path));
  return text ? parse_draft_records(*text, path) : std::vector<DraftRecord>{};
}

const DraftStats* find_draft_record(std::span<const DraftRecord> all, std::string_view key) {
  for (const DraftRecord& record : all) {
    if (record.key == key) return &record.stats;
  }
  return nullptr;
}

Status store_draft_record(FaultPoints& faults, const std::string& path,
                          std::vector<DraftRecord> all, const std::string& key,
                          const DraftStats& run) {
  DraftRecord updated{.key = key};
  if (const DraftStats* before = find_draft_record(all, key)) updated.stats = *before;
  updated.stats += run;
  updated.stats.by_accepted = {};
  for (size_t place = 0; place < kMostDrafts; ++place) {
    if (updated.stats.tried[place] < kFullRecord) continue;
    updated.stats.tried[place] /= 2;
    updated.stats.accepted[place] /= 2;
  }
  std::erase_if(all, [&](const DraftRecord& record) { return record.key == key; });
  if (all.size() >= kMostRecords) all.erase(all.begin());
  all.push_back(std::move(updated));
  return write_kept(faults, path, format_draft_records(all));
}

std::optional<std::string> draft_alarm(const DraftStats& run, const DraftStats* record) {
  const auto text = [&](int place, const std::string& expected) {
    const auto index = static_cast<size_t>(place);
    return fmt::format(
        "of the drafts at place {} only {} of {} were right ({:.2f}), {}; the text is right all "
        "the same, but the draft layer may be damaged: `motley verify` checks it",
        place + 1, run.accepted[index], run.tried[index], run.rate(place), expected);
  };
  for (int place = 0; place < kMostDrafts; ++place) {
    const auto index = static_cast<size_t>(place);
    if (run.tried[index] < kLeastRun) break;
    if (record != nullptr && record->tried[index] >= kLeastRecord) {
      const double expected = record->rate(place);
      const double deviation =
          std::sqrt(expected * (1 - expected) / static_cast<double>(run.tried[index]));
      if (run.rate(place) < expected - kBand - 3 * deviation) {
        return text(place, fmt::format("in earlier runs of this model {:.2f}", expected));
      }
    } else if (place == 0 && run.rate(0) < kFloor) {
      return text(0, fmt::format("of any layer that works more than {:.2f}", kFloor));
    }
  }
  return std::nullopt;
}

}  // namespace motley
