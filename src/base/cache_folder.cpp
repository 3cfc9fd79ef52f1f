#include "base/cache_folder.h"

#include <cstdlib>
#include <filesystem>

namespace motley {

std::string cache_file_path(std::string_view name) {
  const char* cache_home = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (cache_home != nullptr && *cache_home == '/') {
    folder = cache_home;
  } else if (home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return "";
  }
  return folder / "motley" / name;
}

}  // namespace motley
