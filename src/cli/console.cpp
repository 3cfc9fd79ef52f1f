#include "cli/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace motley {
namespace {

Status write_all(int descriptor, std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return io_error(fmt::format("write to {}", name), errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return Status::ok();
}

std::string_view style_code(Console::Style style) {
  switch (style) {
    case Console::Style::kPrompt:
      return "\x1b[1;36m";
    case Console::Style::kNote:
      return "\x1b[2m";
    case Console::Style::kError:
      return "\x1b[1;31m";
  }
  return "";
}

// U+0080 to U+009F as UTF-8: terminals obey them like escape sequences.
bool is_c1_control(unsigned char first, unsigned char second) {
  return first == 0xC2 && second >= 0x80 && second <= 0x9F;
}

bool same_file(int a, int b) {
  struct stat first{};
  struct stat second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

Console::Console(ConsoleOptions options)
    : options_(options),
      in_is_terminal_(::isatty(options.in) == 1),
      out_is_terminal_(::isatty(options.out) == 1),
      err_is_terminal_(::isatty(options.err) == 1),
      outputs_are_one_(same_file(options.out, options.err)) {}

void Console::out(std::string_view text) {
  if (out_status_.is_ok()) out_status_ = write_all(options_.out, text, "standard output");
}

void Console::err(std::string_view text) {
  (void)write_all(options_.err, text, "standard error");  // there is nowhere to report it
}

void Console::error(std::string_view message) {
  err(styled(Style::kError, "motley:", false) + " " + std::string(message) + "\n");
}

std::string Console::styled(Style style, std::string_view text, bool for_out) const {
  const bool terminal = for_out ? out_is_terminal_ : err_is_terminal_;
  if (!terminal || options_.no_color) return std::string(text);
  return std::string(style_code(style)).append(text).append("\x1b[0m");
}

std::string text_for_terminal(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      shown += fmt::format("\\x{:02x}", byte);
    } else if (i + 1 < text.size() &&
               is_c1_control(byte, static_cast<unsigned char>(text[i + 1]))) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i + 1]));
      ++i;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

Result<std::string> read_stream(int descriptor, size_t max_bytes, std::string_view name) {
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) return cancelled(fmt::format("{}: interrupted", name));
    if (count < 0) return io_error(fmt::format("read {}", name), errno);
    if (count == 0) return text;
    if (text.size() + static_cast<size_t>(count) > max_bytes) {
      return resource_exhausted(
          fmt::format("{} is longer than {} bytes, the most that is read", name, max_bytes));
    }
    text.append(buffer.data(), static_cast<size_t>(count));
  }
}

Result<std::string> read_input_file(const std::string& path, size_t max_bytes) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return io_error(fmt::format("open {}", path), errno);
  Result<std::string> text = read_stream(descriptor, max_bytes, path);
  ::close(descriptor);
  return text;
}

}  // namespace motley
