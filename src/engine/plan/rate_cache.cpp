#include "engine/plan/rate_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "io/kept_results.h"
#include "spec/config_json.h"

namespace motley {
namespace {

constexpr std::string_view kFormat = "motley rates 1";
constexpr size_t kMaxResults = 64;
constexpr size_t kMaxKinds = 16;
constexpr size_t kMaxKey = 1000;
constexpr double kMaxSeconds = 1e6;
constexpr double kMaxRate = 1e15;
constexpr int64_t kMaxTokens = int64_t{1} << 40;
constexpr int64_t kMaxThreads = 1 << 16;
constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr int64_t kMaxDate = int64_t{1} << 40;

struct SecondsField {
  std::string_view name;
  double KindRates::* member;
  bool may_be_zero;
};
constexpr SecondsField kFields[] = {
    {"decode_s", &KindRates::decode_s, false},
    {"decode_per_context_s", &KindRates::decode_per_context_s, true},
    {"experts_s", &KindRates::experts_s, true},
    {"expert_alone_s", &KindRates::expert_alone_s, true},
    {"prefill_s", &KindRates::prefill_s, false},
    {"prefill_per_position_s", &KindRates::prefill_per_position_s, true},
    {"prefill_experts_s", &KindRates::prefill_experts_s, true},
};
constexpr double kLeastSeconds = 1e-12;
constexpr double kLeastRate = 1;

Result<StoredRates> parse_result(const ConfigObject& object, std::string_view file) {
  StoredRates stored;
  ModelRates& rates = stored.rates;
  MOTLEY_ASSIGN_OR_RETURN(stored.key, object.text("key"));
  if (stored.key.size() > kMaxKey) return object.error("key", "is too long");
  MOTLEY_ASSIGN_OR_RETURN(stored.taken_unix_s, object.integer("taken_unix_s", 0, kMaxDate));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t threads, object.integer("threads", 1, kMaxThreads));
  rates.threads = static_cast<int>(threads);
  MOTLEY_ASSIGN_OR_RETURN(rates.near_tokens, object.integer("near_tokens", 0, kMaxTokens));
  MOTLEY_ASSIGN_OR_RETURN(rates.chunk_tokens, object.integer("chunk_tokens", 1, kMaxTokens));
  MOTLEY_ASSIGN_OR_RETURN(rates.head_s, object.number("head_s", kLeastSeconds, kMaxSeconds));
  MOTLEY_ASSIGN_OR_RETURN(rates.head_bytes, object.integer("head_bytes", 1, kMaxBytes));
  MOTLEY_ASSIGN_OR_RETURN(rates.read_one_bytes_per_s,
                          object.number("read_one_bytes_per_s", kLeastRate, kMaxRate));
  MOTLEY_ASSIGN_OR_RETURN(rates.read_all_bytes_per_s,
                          object.number("read_all_bytes_per_s", kLeastRate, kMaxRate));
  MOTLEY_ASSIGN_OR_RETURN(const auto kinds, object_list(object, "kinds", kMaxKinds, file));
  for (const ConfigObject& member : kinds) {
    KindRates& kind = rates.kinds.emplace_back();
    for (const SecondsField& field : kFields) {
      const double least = field.may_be_zero ? 0 : kLeastSeconds;
      MOTLEY_ASSIGN_OR_RETURN(kind.*field.member, member.number(field.name, least, kMaxSeconds));
    }
  }
  return stored;
}

}  // namespace

Result<std::vector<StoredRates>> parse_model_rates(std::string_view text, std::string name) {
  MOTLEY_ASSIGN_OR_RETURN(const ConfigJson json, parse_kept(text, std::move(name), kFormat));
  MOTLEY_ASSIGN_OR_RETURN(const auto members,
                          object_list(json.root(), "results", kMaxResults, json.file()));
  std::vector<StoredRates> all;
  for (const ConfigObject& member : members) {
    MOTLEY_ASSIGN_OR_RETURN(StoredRates stored, parse_result(member, json.file()));
    all.push_back(std::move(stored));
  }
  return all;
}

std::string format_model_rates(std::span<const StoredRates> all) {
  std::string text = fmt::format("{{\"format\": {}, \"results\": [", json_quote(kFormat));
  for (const StoredRates& stored : all) {
    const ModelRates& rates = stored.rates;
    text += fmt::format(
        "{}\n {{\"key\": {}, \"taken_unix_s\": {}, \"threads\": {}, \"near_tokens\": {},\n"
        "  \"chunk_tokens\": {}, \"head_s\": {:.17g}, \"head_bytes\": {},\n"
        "  \"read_one_bytes_per_s\": {:.17g}, \"read_all_bytes_per_s\": {:.17g}, \"kinds\": [",
        &stored == all.data() ? "" : ",", json_quote(stored.key), stored.taken_unix_s,
        rates.threads, rates.near_tokens, rates.chunk_tokens, rates.head_s, rates.head_bytes,
        rates.read_one_bytes_per_s, rates.read_all_bytes_per_s);
    for (const KindRates& kind : rates.kinds) {
      text += &kind == rates.kinds.data() ? "\n   {" : ",\n   {";
      for (const SecondsField& field : kFields) {
        text += fmt::format("{}{}: {:.17g}", &field == kFields ? "" : ", ", json_quote(field.name),
                            kind.*field.member);
      }
      text += "}";
    }
    text += "]}";
  }
  return text + "\n]}\n";
}

std::string rate_key(const RateQuestion& question) {
  return fmt::format("{}; {} threads; {}; {}; {:016x}", question.processor, question.threads,
                     question.numerics, question.build, hash_bytes(question.shapes));
}

Result<std::vector<StoredRates>> load_model_rates(FaultPoints& faults, const std::string& path) {
  if (path.empty()) return std::vector<StoredRates>{};
  MOTLEY_ASSIGN_OR_RETURN(const auto text, read_kept(faults, path));
  return text ? parse_model_rates(*text, path) : std::vector<StoredRates>{};
}

std::optional<StoredRates> find_model_rates(std::span<const StoredRates> all, std::string_view key,
                                            int64_t max_age_s) {
  for (const StoredRates& stored : all) {
    if (stored.key == key && is_recent(stored.taken_unix_s, max_age_s)) return stored;
  }
  return std::nullopt;
}

Status store_model_rates(FaultPoints& faults, const std::string& path, std::vector<StoredRates> all,
                         StoredRates added) {
  std::erase_if(all, [&](const StoredRates& stored) { return stored.key == added.key; });
  if (all.size() >= kMaxResults) all.erase(all.begin());
  all.push_back(std::move(added));
  std::string text = format_model_rates(all);
  while (text.size() > kKeptLimits.max_bytes && all.size() > 1) {
    all.erase(all.begin());
    text = format_model_rates(all);
  }
  return write_kept(faults, path, text);
}

}  // namespace motley
