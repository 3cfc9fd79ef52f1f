// motley doctor: what this machine has for motley, and what is in its way.
#include <sys/stat.h>

#include <filesystem>
#include <set>

#include "base/cache_folder.h"
#include "base/clock.h"
#include "cli/common_options.h"
#include "cli/console.h"
#include "cli/option_values.h"
#include "cli/stage_line.h"
#include "cli/verbs.h"
#include "engine/doctor/drive_check.h"
#include "engine/doctor/system_checks.h"

namespace motley {
namespace {

using namespace options;

// The current folder and that of the cache, or the nearest above it that exists.
std::vector<std::string> default_paths() {
  std::vector<std::string> paths = {"."};
  std::filesystem::path cache = std::filesystem::path(cache_file_path("x")).parent_path();
  std::error_code error;
  while (!cache.empty() && !std::filesystem::is_directory(cache, error) &&
         cache != cache.parent_path()) {
    cache = cache.parent_path();
  }
  if (!cache.empty()) paths.push_back(cache.string());
  return paths;
}

Result<int> run_doctor(Invocation& invocation) {
  const OptionValues& values = invocation.options;
  StageLine line(invocation.console);
  line.show("looking at the system");
  MOTLEY_ASSIGN_OR_RETURN(std::vector<Finding> findings,
                          check_system(values.given(kCpu) ? values.text(kCpu) : ""));
  std::vector<std::string> paths = values.arguments("PATH");
  if (paths.empty()) paths = default_paths();
  const SteadyClock clock;
  FaultPoints faults;
  std::set<dev_t> seen;  // drives that were measured already
  for (const std::string& path : paths) {
    struct stat about{};
    if (stat(path.c_str(), &about) == 0 && !seen.insert(about.st_dev).second) continue;
    line.show("measuring the drive of " + path);
    MOTLEY_ASSIGN_OR_RETURN(
        const DriveFacts facts,
        examine_drive(clock, faults, path, {.cache_path = cache_file_path("drives.json")}));
    findings.push_back(judge_drive(facts));
  }
  line.show("");
  invocation.console.out(values.flag(kJson) ? findings_json(findings) : findings_table(findings));
  return overall(findings) == Health::kBroken ? kExitFailure : kExitOk;
}

}  // namespace

VerbSpec doctor_verb() {
  return {.name = "doctor",
          .summary = "check what this machine has for motley",
          .description =
              "Looks at processor, memory and its limits, locking, huge pages, io_uring and GPU, "
              "and measures the drives that hold the given paths. Each finding says what it means "
              "for motley, and what to do when it is bad. Where a folder has no large files, 128 "
              "MiB are written to measure with, and removed.\n\n"
              "The exit status is 0 when motley works, be it slowly, and 1 when it cannot.",
          .arguments = {{.name = "PATH",
                         .type = OptionType::kFile,
                         .help = "files or folders on the drives to measure (default: the current "
                                 "folder and the cache's)",
                         .required = false,
                         .repeatable = true}},
          .options = {kCpu, kJson},
          .examples = {{"motley doctor", "this machine and the drive here"},
                       {"motley doctor /models --json", "another drive, for programs"}},
          .run = run_doctor};
}

}  // namespace motley
