#include "io/kept_results.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "io/file.h"
#include "io/file_writer.h"

namespace motley {

Result<ConfigJson> parse_kept(std::string_view text, std::string name, std::string_view format) {
  MOTLEY_ASSIGN_OR_RETURN(ConfigJson json, ConfigJson::parse(text, std::move(name), kKeptLimits));
  const ConfigObject root = json.root();
  MOTLEY_ASSIGN_OR_RETURN(const std::string stated, root.text("format"));
  if (stated != format) return root.error("format", fmt::format("must be '{}'", format));
  return json;
}

Result<std::vector<ConfigObject>> object_list(const ConfigObject& owner, std::string_view key,
                                              size_t max, std::string_view file) {
  const JsonValue* value = owner.value().find(key);
  const auto* list = value == nullptr ? nullptr : std::get_if<JsonValue::Array>(&value->data);
  if (list == nullptr || list->size() > max) {
    return owner.error(key, fmt::format("must be a list of at most {}", max));
  }
  std::vector<ConfigObject> members;
  for (const JsonValue& member : *list) {
    if (member.as_object() == nullptr) return owner.error(key, "must hold objects");
    members.emplace_back(member, file, fmt::format("{}[{}].", key, members.size()));
  }
  return members;
}

Result<std::optional<std::string>> read_kept(FaultPoints& faults, const std::string& path) {
  const auto file = File::open(faults, path);
  if (file.status().code() == StatusCode::kNotFound) return std::optional<std::string>();
  MOTLEY_RETURN_IF_ERROR(file.status());
  MOTLEY_ASSIGN_OR_RETURN(std::string text,
                          file->read_text(static_cast<int64_t>(kKeptLimits.max_bytes)));
  return std::optional(std::move(text));
}

Status write_kept(FaultPoints& faults, const std::string& path, std::string_view text) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return io_error(path, error.value());
  return write_file(faults, path, std::as_bytes(std::span(text)));
}

int64_t unix_now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool is_recent(int64_t taken_unix_s, int64_t max_age_s) {
  const int64_t age_s = unix_now_s() - taken_unix_s;
  return age_s >= 0 && age_s <= max_age_s;
}

}  // namespace motley
