// The acceptance that a model's drafts had in earlier runs, kept in a small file, and the alarm
// when a run falls below it.
//
// A wrong cache, hidden state or quantisation of a draft layer changes no token, only how many
// drafts are accepted: nothing but this would show it.
// Thread rule: free functions; of two programs that store, the last one wins.
// Errors: those of io/kept_results.h; a damaged file is as good as none.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault_points.h"
#include "base/status.h"
#include "engine/draft/draft_stats.h"
#include "io/loader.h"

namespace motley {

struct DraftRecord {
  std::string key;
  DraftStats stats;  // tried and accepted alone
};

// Of a model with a draft layer: by the layer's projection.
std::string draft_record_key(const LoadedModel& model);

Result<std::vector<DraftRecord>> parse_draft_records(std::string_view text, std::string name);
std::string format_draft_records(std::span<const DraftRecord> all);

// Empty path: none.
Result<std::vector<DraftRecord>> load_draft_records(FaultPoints& faults, const std::string& path);
const DraftStats* find_draft_record(std::span<const DraftRecord> all, std::string_view key);
// Adds a run to the model's record; old runs fade.
Status store_draft_record(FaultPoints& faults, const std::string& path,
                          std::vector<DraftRecord> all, const std::string& key,
                          const DraftStats& run);

// What is wrong with a run: acceptance far below the record (null: none yet), or below what any
// draft layer that works has. Runs too short to tell raise none.
std::optional<std::string> draft_alarm(const DraftStats& run, const DraftStats* record);

}  // namespace motley
