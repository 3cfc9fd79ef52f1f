// The directory that a conversion fills: nobody else writes there meanwhile, and a run that fails
// leaves the disk as it found it.
//
// The lock is the file ".motley-lock", created exclusively, which works on network drives too. A
// program that was killed leaves it behind, next to its unfinished files.
// Ownership: of the files added and of the directories that create() had to make; all of them are
// removed by the destructor unless finish() succeeded. Thread rule: one thread.
// Fault points: io.open, and those of FileWriter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fault_points.h"
#include "base/status.h"

namespace motley {

class OutputDirectory {
 public:
  static constexpr std::string_view kLockName = ".motley-lock";

  // Makes the directory and its parents where they are missing. kInvalidArgument when it is not
  // empty or another program is writing there.
  static Result<OutputDirectory> create(FaultPoints& faults, const std::string& path);
  OutputDirectory(OutputDirectory&& other) noexcept;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  ~OutputDirectory();

  const std::string& path() const { return path_; }
  // The path of a file that is about to be written, which now belongs to this run.
  std::string add(std::string_view name);
  Status write(std::string_view name, std::string_view text);
  // All is written: unlocks the directory and keeps it.
  Status finish();

 private:
  explicit OutputDirectory(FaultPoints& faults) : faults_(&faults) {}
  Status make_directories();
  Status lock();
  Status check_empty() const;

  FaultPoints* faults_;
  std::string path_;
  std::vector<std::string> directories_;  // made by this run, outermost first
  std::vector<std::string> files_;        // of this run, the lock among them
};

}  // namespace motley
