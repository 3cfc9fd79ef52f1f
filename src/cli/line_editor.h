// Lines typed at a terminal, with editing and history. The only file that uses libedit.
//
// The history file is readable by its owner only. Without a usable file the history lasts as long
// as the program. Input is taken as UTF-8 whatever the locale says.
// Thread rule: one at a time, on the main thread (libedit sets the process's locale and terminal).
#pragma once

#include <memory>
#include <string>

#include "base/signals.h"

namespace motley {

enum class LineEvent { kLine, kEnd, kInterrupted };

struct InputLine {
  LineEvent event = LineEvent::kEnd;
  std::string text;  // without the newline
};

class LineEditor {
 public:
  // `history_file`: empty for none. `to_stderr`: the prompt goes to standard error. `interrupt`
  // outlives the editor.
  LineEditor(const std::string& history_file, bool to_stderr, const InterruptHandler& interrupt);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // kEnd: Ctrl-D on an empty line. kInterrupted: Ctrl-C, at whatever moment since the
  // last clear() of the handler; what was typed is dropped.
  InputLine read(const std::string& prompt);
  // Adds to the history and writes the file.
  void remember(const std::string& text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// $XDG_STATE_HOME/motley/history, else ~/.local/state/motley/history; the folder is made with mode
// 0700. Empty when there is no home or the folder cannot be made.
std::string default_history_file();

}  // namespace motley
