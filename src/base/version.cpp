#include "base/version.h"

#include "base/version_data.h"

namespace motley {

BuildInfo build_info() {
  using namespace version_data;
  const std::span<const std::string_view> components(kComponents.data(), kComponents.size() - 1);
  return {kVersion, kRevision, kCompiler, kBuildType, kProcessor, kSanitizers, components};
}

std::string version_text() {
  const BuildInfo info = build_info();
  std::string text;
  text.append("motley ").append(info.version).append(" (").append(info.revision).append(")\n");
  text.append("built with ").append(info.compiler).append(", ").append(info.build_type);
  text.append(", for ").append(info.processor);
  if (!info.sanitizers.empty()) text.append(", sanitizers ").append(info.sanitizers);
  text += '\n';
  for (const std::string_view component : info.components) {
    text.append("  ").append(component).append("\n");
  }
  return text;
}

}  // namespace motley
