// The log: one line a message on stderr, with time and level.
//
// A Logger is passed by reference (base/context.h); there is no global one. Errors are logged where
// they are handled, not where they pass by. What users and models write (prompts, answers, tool
// arguments) goes through user_text() alone, which is never above debug.
// Thread rule: all members may be called from any thread.
#pragma once

#include <fmt/format.h>

#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace motley {

// By volume: a level is fit for the amount that it prints, not for its importance.
enum class LogLevel {
  kDebug,    // per request or more often
  kInfo,     // what was loaded and decided; a few lines a run
  kWarning,  // worked, but not as asked or not as well as it could
  kError,    // did not work
  kOff,
};

// "debug", "info", "warning", "error" or "off".
Result<LogLevel> parse_log_level(std::string_view name);

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  std::ostream* stream = nullptr;  // borrowed; nullptr: stderr, coloured when it is a terminal
};

class Logger {
 public:
  explicit Logger(LogOptions options = {});
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  bool enabled(LogLevel level) const;

  template <typename... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::kDebug, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::kInfo, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::kWarning, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::kError, format, std::forward<Args>(args)...);
  }
  // Text that a user or a model wrote, at level debug.
  void user_text(std::string_view what, std::string_view text) const;

  // One line, whatever `message` holds: control characters are escaped.
  void write(LogLevel level, std::string_view message) const;

 private:
  template <typename... Args>
  void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(level)) write(level, fmt::format(format, std::forward<Args>(args)...));
  }

  struct State;
  std::unique_ptr<State> state_;
};

// `text` with control characters as escapes (\n, \t, \x1b), for messages that quote input.
std::string escape_control_characters(std::string_view text);

// The same for errors, which stay readable whatever they quote: at most 200 bytes of `text`, whole
// characters of valid UTF-8, and "..." where it was cut.
std::string quote_input(std::string_view text);

}  // namespace motley
