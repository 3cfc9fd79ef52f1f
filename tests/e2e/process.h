// Starts the program and looks at what it writes: in pipes, or on a pseudo terminal.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace motley::e2e {

struct Outcome {
  int exit = -1;   // 128 + N after signal N
  int signal = 0;  // N, when a signal ended the program; 0 when it ended by itself
  std::string out;
  std::string err;
  int64_t peak_bytes = 0;  // of resident memory
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// Runs the program with `input` as standard input. MOTLEY_ variables of the caller are removed
// before `variables` are set.
Outcome run(const std::vector<std::string>& words, const std::string& input = "",
            const Variables& variables = {});

struct RunOptions {
  std::string program;  // empty: the one that was built
  std::string input;
  Variables variables;
  // Called once, when the first byte of standard output has come.
  std::function<void(int process)> on_first_output;
};
Outcome run_with(const std::vector<std::string>& words, const RunOptions& options);

// The program on a terminal of 80 columns.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& words, const Variables& variables = {});
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& text);
  // Reads until `text` has come since the last call; false after `seconds`.
  bool wait_for(const std::string& text, double seconds = 120);
  // Reads to the end and waits for the program; its exit status as above.
  int finish(double seconds = 120);
  // All that was read.
  const std::string& screen() const { return screen_; }
  int process() const { return process_; }

 private:
  bool read_some(double seconds);

  int master_ = -1;
  int process_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

// A folder of its own, removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& content) const;

 private:
  std::string path_;
};

std::string read_file(const std::string& path);
std::string pocket_model();
bool exists(const std::string& path);

}  // namespace motley::e2e
