// Where files lie that can be made again: $XDG_CACHE_HOME/motley, else ~/.cache/motley.
// Thread rule: reads the environment only.
#pragma once

#include <string>
#include <string_view>

namespace motley {

// Of a file in it; empty when there is no such place (no absolute HOME). Nothing is created.
std::string cache_file_path(std::string_view name);

}  // namespace motley
