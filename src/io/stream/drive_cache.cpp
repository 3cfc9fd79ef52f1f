// The results of drive probes in a file.
#include <fmt/format.h>

#include <algorithm>

#include "base/cache_folder.h"
#include "io/kept_results.h"
#include "io/stream/drive_probe.h"
#include "spec/config_json.h"

namespace motley {
namespace {

constexpr std::string_view kFormat = "motley drives 1";
constexpr size_t kMaxProbes = 64;
constexpr size_t kMaxDepths = 32;
constexpr size_t kMaxText = 1000;
constexpr double kMaxRate = 1e13;
constexpr int64_t kMaxDepth = 4096;
constexpr int64_t kMaxRecord = int64_t{1} << 40;
constexpr int64_t kMaxParts = 1024;
constexpr int64_t kMaxDate = int64_t{1} << 40;

Result<std::string> short_text(const ConfigObject& object, std::string_view key) {
  MOTLEY_ASSIGN_OR_RETURN(std::string text, object.text(key));
  if (text.size() > kMaxText) return object.error(key, "is too long");
  return text;
}

Result<DriveProbe> parse_probe(const ConfigObject& object, std::string_view file) {
  DriveProbe probe;
  MOTLEY_ASSIGN_OR_RETURN(probe.drive, short_text(object, "drive"));
  MOTLEY_ASSIGN_OR_RETURN(probe.backend, short_text(object, "backend"));
  MOTLEY_ASSIGN_OR_RETURN(probe.reason, short_text(object, "reason"));
  MOTLEY_ASSIGN_OR_RETURN(probe.record_class_bytes,
                          object.integer("record_class_bytes", 1, kMaxRecord));
  MOTLEY_ASSIGN_OR_RETURN(const int64_t parts, object.integer_or("parts", 1, 1, kMaxParts));
  probe.parts = static_cast<int>(parts);
  MOTLEY_ASSIGN_OR_RETURN(probe.is_direct, object.boolean_or("is_direct", false));
  MOTLEY_ASSIGN_OR_RETURN(probe.taken_unix_s, object.integer("taken_unix_s", 0, kMaxDate));
  MOTLEY_ASSIGN_OR_RETURN(probe.sequential_bytes_per_second,
                          object.number("sequential_bytes_per_second", 1, kMaxRate));
  MOTLEY_ASSIGN_OR_RETURN(const auto rates, object_list(object, "random", kMaxDepths, file));
  if (rates.empty()) return object.error("random", "must not be empty");
  int64_t last = 0;
  for (const ConfigObject& rate : rates) {
    MOTLEY_ASSIGN_OR_RETURN(const int64_t depth, rate.integer("depth", last + 1, kMaxDepth));
    MOTLEY_ASSIGN_OR_RETURN(const double speed, rate.number("bytes_per_second", 1, kMaxRate));
    probe.random.push_back({static_cast<int>(depth), speed});
    last = depth;
  }
  return probe;
}

bool same_question(const DriveProbe& a, const DriveProbe& b) {
  return a.drive == b.drive && a.backend == b.backend && a.is_direct == b.is_direct &&
         a.record_class_bytes == b.record_class_bytes && a.parts == b.parts;
}

// What a probe would say about itself, without the measurement.
Result<DriveProbe> question_of(FaultPoints& faults, const File& file,
                               const DriveProbeOptions& options) {
  DriveProbe question;
  MOTLEY_ASSIGN_OR_RETURN(question.drive, drive_identity(file));
  MOTLEY_ASSIGN_OR_RETURN(const DirectFile direct,
                          DirectFile::open(faults, file, options.cache_use));
  question.is_direct = direct.is_direct();
  MOTLEY_ASSIGN_OR_RETURN(
      const OpenedReadBackend opened,
      open_read_backend({}, {.kind = options.backend, .capacity = 1, .threads = 1}));
  question.backend = opened.backend->name();
  question.record_class_bytes = record_class(options.record_bytes);
  question.parts = static_cast<int>(std::max<size_t>(options.part_bytes.size(), 1));
  return question;
}

Result<std::vector<DriveProbe>> load(FaultPoints& faults, const std::string& path) {
  MOTLEY_ASSIGN_OR_RETURN(const auto text, read_kept(faults, path));
  return text ? parse_drive_probes(*text, path) : std::vector<DriveProbe>{};
}

Status store(FaultPoints& faults, const std::string& path, std::vector<DriveProbe> probes,
             const DriveProbe& added) {
  std::erase_if(probes, [&](const DriveProbe& probe) { return same_question(probe, added); });
  if (probes.size() >= kMaxProbes) probes.erase(probes.begin());
  probes.push_back(added);
  return write_kept(faults, path, format_drive_probes(probes));
}

}  // namespace

Result<std::vector<DriveProbe>> parse_drive_probes(std::string_view text, std::string name) {
  MOTLEY_ASSIGN_OR_RETURN(const ConfigJson json, parse_kept(text, std::move(name), kFormat));
  MOTLEY_ASSIGN_OR_RETURN(const auto members,
                          object_list(json.root(), "probes", kMaxProbes, json.file()));
  std::vector<DriveProbe> probes;
  for (const ConfigObject& member : members) {
    MOTLEY_ASSIGN_OR_RETURN(DriveProbe probe, parse_probe(member, json.file()));
    probes.push_back(std::move(probe));
  }
  return probes;
}

std::string format_drive_probes(std::span<const DriveProbe> probes) {
  std::string text = fmt::format("{{\"format\": {}, \"probes\": [", json_quote(kFormat));
  for (const DriveProbe& probe : probes) {
    text += fmt::format(
        "{}\n {{\"drive\": {}, \"backend\": {}, \"record_class_bytes\": {}, \"parts\": {},\n  "
        "\"is_direct\": {},"
        " \"reason\": {}, \"taken_unix_s\": {}, \"sequential_bytes_per_second\": {:.0f},\n"
        "  \"random\": [",
        &probe == probes.data() ? "" : ",", json_quote(probe.drive), json_quote(probe.backend),
        probe.record_class_bytes, probe.parts, probe.is_direct, json_quote(probe.reason),
        probe.taken_unix_s, probe.sequential_bytes_per_second);
    for (const DriveRate& rate : probe.random) {
      text +=
          fmt::format("{}{{\"depth\": {}, \"bytes_per_second\": {:.0f}}}",
                      &rate == probe.random.data() ? "" : ", ", rate.depth, rate.bytes_per_second);
    }
    text += "]}";
  }
  return text + "\n]}\n";
}

std::string default_drive_cache_path() {
  return cache_file_path("drives.json");
}

std::optional<DriveProbe> find_drive_probe(FaultPoints& faults, const std::string& path,
                                           int64_t record_bytes, const std::string& cache_path) {
  if (cache_path.empty()) return std::nullopt;
  const auto drive = drive_identity(path);
  const auto known = load(faults, cache_path);
  if (!drive.is_ok() || !known.is_ok()) return std::nullopt;
  const int64_t wanted = record_class(record_bytes);
  std::optional<DriveProbe> best;
  for (const DriveProbe& probe : *known) {
    if (probe.drive != *drive) continue;
    const auto rank = [&](const DriveProbe& one) {
      return std::pair(one.record_class_bytes == wanted, one.taken_unix_s);
    };
    if (!best.has_value() || rank(probe) > rank(*best)) best = probe;
  }
  return best;
}

Result<CachedDriveProbe> probe_drive_cached(const Clock& clock, FaultPoints& faults,
                                            std::span<const File* const> files,
                                            const DriveProbeOptions& options,
                                            const std::string& cache_path, int64_t max_age_s) {
  CachedDriveProbe cached;
  std::vector<DriveProbe> known;
  if (!cache_path.empty() && !files.empty()) {
    MOTLEY_ASSIGN_OR_RETURN(const DriveProbe question,
                            question_of(faults, *files.front(), options));
    auto loaded = load(faults, cache_path);
    if (loaded.is_ok()) {
      known = std::move(*loaded);
    } else {
      cached.note = "drive cache ignored: " + loaded.status().message();
    }
    for (const DriveProbe& probe : known) {
      if (!same_question(probe, question) || !is_recent(probe.taken_unix_s, max_age_s)) continue;
      cached.probe = probe;
      cached.was_cached = true;
      return cached;
    }
  }
  MOTLEY_ASSIGN_OR_RETURN(cached.probe, probe_drive(clock, faults, files, options));
  if (cache_path.empty()) return cached;
  const Status stored = store(faults, cache_path, std::move(known), cached.probe);
  if (!stored.is_ok()) cached.note = "drive cache not written: " + stored.message();
  return cached;
}

}  // namespace motley
