#include "base/install_paths.h"

#include <filesystem>
#include <system_error>

namespace motley {

namespace fs = std::filesystem;

std::vector<std::string> shared_folders(const std::string& executable) {
  const fs::path folder = fs::path(executable).parent_path();
  const fs::path above = folder.parent_path();
  return {(above / "share" / "motley").string(), above.parent_path().string(), above.string()};
}

Result<std::string> find_shared_file(std::string_view relative) {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) return io_error("readlink /proc/self/exe", error.value());
  std::string tried;
  for (const std::string& folder : shared_folders(executable.string())) {
    const fs::path candidate = fs::path(folder) / relative;
    if (fs::exists(candidate, error)) return candidate.string();
    tried += (tried.empty() ? "" : ", ") + candidate.string();
  }
  return not_found("no " + std::string(relative) + " beside this program; looked for " + tried);
}

}  // namespace motley
