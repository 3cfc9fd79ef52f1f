// Small JSON files of measurements that are kept to save making them again: {"format": ..., a
// list}.
//
// Such a file is input like any other: bounded, checked, and as good as none when it is damaged. It
// is written anew under a temporary name and renamed, so of two writers the last one wins.
// Errors: kCorrupt and kInvalidArgument with one line that names the file.
// Thread rule: free functions. Fault points: those of io/file.h and io/file_writer.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault_points.h"
#include "base/status.h"
#include "spec/config_json.h"

namespace motley {

constexpr JsonLimits kKeptLimits = {.max_bytes = size_t{256} << 10, .max_depth = 8};

// Refuses a file of another format.
Result<ConfigJson> parse_kept(std::string_view text, std::string name, std::string_view format);

// The members of a list of objects, at most `max`. `file` and the JSON that `owner` is of outlive
// the result.
Result<std::vector<ConfigObject>> object_list(const ConfigObject& owner, std::string_view key,
                                              size_t max, std::string_view file);

// The text of the file at `path`; nullopt when there is none.
Result<std::optional<std::string>> read_kept(FaultPoints& faults, const std::string& path);
// Makes the folder when it is missing.
Status write_kept(FaultPoints& faults, const std::string& path, std::string_view text);

int64_t unix_now_s();
// Taken not in the future and at most `max_age_s` ago.
bool is_recent(int64_t taken_unix_s, int64_t max_age_s);

}  // namespace motley
