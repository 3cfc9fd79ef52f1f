// What this build is: version, source revision, compiler and the components that it was built with.
//
// The facts are taken when the build tree is configured.
// Thread rule: constants; call from any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace motley {

struct BuildInfo {
  std::string_view version;                      // "0.1.0"
  std::string_view revision;                     // git describe, or "unknown" outside a repository
  std::string_view compiler;                     // "GNU 12.2.0"
  std::string_view build_type;                   // "Release"
  std::string_view processor;                    // "x86_64"
  std::string_view sanitizers;                   // "" or "address,undefined"
  std::span<const std::string_view> components;  // "fmt 9.1.0", "CUDA not built"
};

BuildInfo build_info();

// The text of `motley --version`; the first line is "motley VERSION (REVISION)".
std::string version_text();

}  // namespace motley
