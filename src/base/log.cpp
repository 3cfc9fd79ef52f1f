#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <array>

namespace motley {
namespace {

struct LevelRow {
  std::string_view name;
  LogLevel level;
  spdlog::level::level_enum library_level;
};
constexpr std::array<LevelRow, 5> kLevels = {{
    {"debug", LogLevel::kDebug, spdlog::level::debug},
    {"info", LogLevel::kInfo, spdlog::level::info},
    {"warning", LogLevel::kWarning, spdlog::level::warn},
    {"error", LogLevel::kError, spdlog::level::err},
    {"off", LogLevel::kOff, spdlog::level::off},
}};

spdlog::level::level_enum library_level(LogLevel level) {
  return kLevels.at(static_cast<size_t>(level)).library_level;
}

spdlog::sink_ptr make_sink(std::ostream* stream) {
  if (stream != nullptr) return std::make_shared<spdlog::sinks::ostream_sink_mt>(*stream, true);
  return std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
}

}  // namespace

Result<LogLevel> parse_log_level(std::string_view name) {
  for (const LevelRow& row : kLevels) {
    if (row.name == name) return row.level;
  }
  return invalid_argument(fmt::format(
      "log level '{}' is unknown; use debug, info, warning, error or off", quote_input(name)));
}

struct Logger::State {
  explicit State(const LogOptions& options) : logger("motley", make_sink(options.stream)) {
    logger.set_level(library_level(options.level));
    logger.flush_on(spdlog::level::warn);
    logger.set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    // A log that cannot be written must not end the program, nor talk to the terminal.
    logger.set_error_handler([](const std::string&) {});
  }
  spdlog::logger logger;
};

Logger::Logger(LogOptions options) : state_(std::make_unique<State>(options)) {}

Logger::~Logger() = default;

bool Logger::enabled(LogLevel level) const {
  return level != LogLevel::kOff && state_->logger.should_log(library_level(level));
}

void Logger::write(LogLevel level, std::string_view message) const {
  if (enabled(level)) state_->logger.log(library_level(level), escape_control_characters(message));
}

void Logger::user_text(std::string_view what, std::string_view text) const {
  debug("{}: {}", what, text);
}

std::string escape_control_characters(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      escaped += "\\n";
    } else if (c == '\t') {
      escaped += "\\t";
    } else if (c == '\r') {
      escaped += "\\r";
    } else if (byte < 0x20 || byte == 0x7F) {
      escaped += fmt::format("\\x{:02x}", byte);
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string quote_input(std::string_view text) {
  constexpr size_t kMaxBytes = 200;
  if (text.size() <= kMaxBytes) return escape_control_characters(text);
  size_t end = kMaxBytes;
  const auto continues = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  // A character has at most three bytes after its first.
  while (end > kMaxBytes - 3 && continues(end)) --end;
  return escape_control_characters(text.substr(0, end)) + "...";
}

}  // namespace motley
