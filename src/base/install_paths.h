// Where files that belong to the program are found, installed or in a build tree.
//
// Thread rule: reads the file system only; call from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace motley {

// Folders that may hold shared files for a program at `executable`, in the order they are tried:
// PREFIX/share/motley for PREFIX/bin/motley, then the folders above build/PRESET/motley.
std::vector<std::string> shared_folders(const std::string& executable);

// The first existing `relative` (such as "models/pocket") for this process's own executable; an
// error names every place that was looked at.
Result<std::string> find_shared_file(std::string_view relative);

}  // namespace motley
