// The program's three standard streams: who is a terminal, colours, and write errors.
//
// Text is written at once, without buffering, so that tokens appear as they come. The first write
// error of standard output is kept and becomes the exit status; later writes are dropped.
// Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace motley {

struct ConsoleOptions {
  int in = 0;
  int out = 1;
  int err = 2;
  bool no_color = false;  // the variable NO_COLOR is set and not empty
};

class Console {
 public:
  explicit Console(ConsoleOptions options);

  void out(std::string_view text);
  void err(std::string_view text);
  // "motley: message" on standard error.
  void error(std::string_view message);

  int in_descriptor() const { return options_.in; }
  bool in_is_terminal() const { return in_is_terminal_; }
  bool out_is_terminal() const { return out_is_terminal_; }
  bool err_is_terminal() const { return err_is_terminal_; }
  // Both outputs go to one file or pipe (2>&1), so that a line of one may begin amid the other's.
  bool outputs_are_one() const { return outputs_are_one_; }

  enum class Style { kPrompt, kNote, kError };
  // `text` in colour, where `for_out` or standard error can show it.
  std::string styled(Style style, std::string_view text, bool for_out) const;

  // The first write error of standard output.
  const Status& out_status() const { return out_status_; }

 private:
  ConsoleOptions options_;
  bool in_is_terminal_ = false;
  bool out_is_terminal_ = false;
  bool err_is_terminal_ = false;
  bool outputs_are_one_ = false;
  Status out_status_;
};

// What follows on a terminal must not be steered by a model: control characters other than newline
// and tab become visible escapes. `text` is valid UTF-8.
std::string text_for_terminal(std::string_view text);

// All bytes up to the end of the stream, at most `max_bytes`. `name` serves the messages.
Result<std::string> read_stream(int descriptor, size_t max_bytes, std::string_view name);
// The same of a file, pipe or device.
Result<std::string> read_input_file(const std::string& path, size_t max_bytes);

}  // namespace motley
