// Measured rates of models in a small JSON file, so that a plan need not measure again.
//
// The file is input like any other: one that is damaged or strange is not used. It is written anew
// under a temporary name and renamed. Limits: 64 results of 16 kinds of layers, 256 KiB.
// Thread rule: values; the last of two writers wins. Fault points: those of io/file.h and
// io/file_writer.h. Errors: kInvalidArgument and kCorrupt with one line that names the file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault_points.h"
#include "base/status.h"
#include "engine/plan/model_rates.h"

namespace motley {

struct StoredRates {
  std::string key;  // rate_key()
  int64_t taken_unix_s = 0;
  ModelRates rates;
  friend bool operator==(const StoredRates&, const StoredRates&) = default;
};

Result<std::vector<StoredRates>> parse_model_rates(std::string_view text, std::string name);
std::string format_model_rates(std::span<const StoredRates> all);

// What the rates depend on, in one line. `shapes` is any text that differs when models do.
struct RateQuestion {
  std::string processor;
  int threads = 0;
  std::string numerics;  // Engine::numerics_name()
  std::string build;     // of the program
  std::string shapes;
};
std::string rate_key(const RateQuestion& question);

// The results in the file at `path`: none when there is no file or `path` is empty.
Result<std::vector<StoredRates>> load_model_rates(FaultPoints& faults, const std::string& path);
// The one for `key` that is at most `max_age_s` old; a negative age: none.
std::optional<StoredRates> find_model_rates(std::span<const StoredRates> all, std::string_view key,
                                            int64_t max_age_s);
// `all` with `added` in the place of what it replaces, and without the oldest beyond the limit.
Status store_model_rates(FaultPoints& faults, const std::string& path, std::vector<StoredRates> all,
                         StoredRates added);

}  // namespace motley
