// The house rules that the tidy test enforces, as tables: edit them here and nowhere else.
#pragma once

#include <string_view>
#include <vector>

namespace motley::tidy {

// Folders of src/ in dependency order; a module may include itself and those before it.
inline const std::vector<std::string_view> kModules = {
    "base",    "topology", "numeric", "tensor", "spec",    "io",     "ops", "state",
    "experts", "model",    "text",    "engine", "cluster", "server", "cli"};

// Modules that must work for every model family and so may not name one.
inline const std::vector<std::string_view> kFamilyBlindModules = {"ops", "state", "experts",
                                                                  "engine", "cluster"};
inline const std::vector<std::string_view> kFamilyNames = {"qwen", "glm", "kimi", "deepseek"};

// Who may include a third-party library: `allowed` holds path prefixes under the repository root.
// Tests may include any of them.
struct LibraryRule {
  std::string_view include_prefix;
  std::vector<std::string_view> allowed;
};
inline const std::vector<LibraryRule> kLibraries = {
    {"fmt/", {"src/", "tests/"}},
    {"spdlog/", {"src/base/log."}},
    {"xxhash.h", {"src/base/hash.cpp"}},
    {"nlohmann/",
     {"src/spec/config_json.", "src/io/safetensors", "src/io/checkpoint", "src/text/json",
      "src/text/tokenizer", "src/text/pre_tokenizer", "src/text/chat_template",
      "src/text/jinja_fuzz.cpp", "src/cli/", "src/server/", "src/text/text_model", "tests/probes/",
      "tests/e2e/"}},
    {"pcre2.h", {"src/text/regex.cpp"}},
    {"utf8proc.h", {"src/text/"}},
    {"CLI/", {"src/cli/command_line.cpp"}},
    {"histedit.h", {"src/cli/line_editor.cpp"}},
    {"toml++/", {"src/cli/"}},
    {"liburing.h", {"src/io/"}},
    {"openssl/", {"src/base/sha256.cpp", "src/server/"}},
    {"curl/", {"src/cli/"}},
    {"sqlite3.h", {"src/state/"}},
    {"zstd.h", {"src/state/"}},
    {"boost/", {"src/server/"}},
    {"prometheus/", {"src/server/"}},
    {"ucp/", {"src/cluster/"}},
    {"ucs/", {"src/cluster/"}},
    {"mpi.h", {"src/cluster/"}},
    {"nccl.h", {"src/cluster/"}},
    {"cuda", {"src/ops/cuda/", "src/cluster/"}},
};
// tests/support: helpers that tests of several modules share, included as "support/...".
inline constexpr std::string_view kTestSupportFolder = "support";

// Free to use in any test, nowhere else.
inline const std::vector<std::string_view> kTestLibraries = {"gtest/", "gmock/", "rapidcheck",
                                                             "benchmark/"};
// System headers with a slash or an ending, free to use anywhere. The C++ library has neither.
inline const std::vector<std::string_view> kSystemHeaders = {
    "sys/",        "asm/",       "linux/",    "netinet/", "arpa/",    "fcntl.h",
    "unistd.h",    "sched.h",    "pthread.h", "poll.h",   "signal.h", "termios.h",
    "immintrin.h", "arm_neon.h", "cpuid.h",   "cxxabi.h", "dirent.h", "dlfcn.h",
    "netdb.h",     "spawn.h",    "elf.h",     "pty.h"};

// Files of library modules that may write to the standard streams themselves.
inline const std::vector<std::string_view> kMayPrint = {"src/base/check.cpp", "src/base/log.cpp",
                                                        "src/base/progress.cpp",
                                                        "src/base/signals.cpp", "src/cli/"};

inline constexpr int kMaxFileLines = 1000;  // a file must stay below it
inline constexpr int kSoftFileLines = 500;  // warned about from here on
inline constexpr int kMaxFunctionLines = 70;
inline constexpr int kMaxColumns = 100;
inline constexpr int kMaxMedianFileLines = 200;
inline constexpr double kWantedTestShare = 0.33;
// Below the wish on purpose: a floor that only rises, so that the share cannot fall unnoticed.
inline constexpr double kLeastTestShare = 0.31;

}  // namespace motley::tidy
