#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/check.h"
#include "text/regex_syntax.h"

namespace motley {
namespace {

// Steps of one search: generous for any sane pattern on long words, seconds at worst for others.
constexpr size_t kMatchLimitBase = 10'000'000;
constexpr size_t kMatchLimitPerByte = 16;
constexpr uint32_t kDepthLimit = 1'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kJitStackStartBytes = 32 * 1024;
constexpr size_t kJitStackMaxBytes = 64 * 1024 * 1024;

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using CodePointer = std::unique_ptr<pcre2_code, Freer<pcre2_code_free>>;
using CompileContextPointer =
    std::unique_ptr<pcre2_compile_context, Freer<pcre2_compile_context_free>>;
using MatchContextPointer = std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context_free>>;
using MatchDataPointer = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data_free>>;
using JitStackPointer = std::unique_ptr<pcre2_jit_stack, Freer<pcre2_jit_stack_free>>;

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 160> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

PCRE2_SPTR units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

struct Regex::Program {
  CodePointer code;
  bool has_jit = false;
};

struct Regex::Scratch::State {
  MatchContextPointer context;
  MatchDataPointer data;
  JitStackPointer stack;
};

Regex::Scratch::Scratch() : state_(std::make_unique<State>()) {
  state_->context.reset(pcre2_match_context_create(nullptr));
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->stack.reset(pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMaxBytes, nullptr));
  MOTLEY_CHECK(state_->context && state_->data, "out of memory for a regex search");
  pcre2_set_depth_limit(state_->context.get(), kDepthLimit);
  pcre2_set_heap_limit(state_->context.get(), kHeapLimitKib);
  if (state_->stack) pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
}

Regex::Scratch::~Scratch() = default;

Regex::Regex(std::unique_ptr<Program> program) : program_(std::move(program)) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Result<Regex> Regex::compile(std::string_view oniguruma_pattern) {
  MOTLEY_ASSIGN_OR_RETURN(const std::string pattern, pcre2_pattern_of_oniguruma(oniguruma_pattern));
  const CompileContextPointer context(pcre2_compile_context_create(nullptr));
  MOTLEY_CHECK(context != nullptr, "out of memory for a regex");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 4 * kMaxPatternDepth);
  int error = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  auto program = std::make_unique<Program>();
  program->code.reset(
      pcre2_compile(units(pattern), pattern.size(), options, &error, &offset, context.get()));
  if (!program->code) {
    return unsupported(fmt::format("the regex does not compile: {} (near '{}')", error_text(error),
                                   pattern.substr(std::min(offset, pattern.size()), 16)));
  }
  program->has_jit = pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(program));
}

Result<std::optional<Regex::Match>> Regex::search(std::string_view text, size_t from,
                                                  Scratch& scratch) const {
  Scratch::State& state = *scratch.state_;
  const size_t limit =
      std::min<size_t>(kMatchLimitBase + kMatchLimitPerByte * text.size(), UINT32_MAX);
  pcre2_set_match_limit(state.context.get(), static_cast<uint32_t>(limit));
  const int count = program_->has_jit
                        ? pcre2_jit_match(program_->code.get(), units(text), text.size(), from, 0,
                                          state.data.get(), state.context.get())
                        : pcre2_match(program_->code.get(), units(text), text.size(), from,
                                      PCRE2_NO_UTF_CHECK, state.data.get(), state.context.get());
  if (count == PCRE2_ERROR_NOMATCH) return std::optional<Match>();
  if (count < 0) {
    return resource_exhausted(
        fmt::format("a regex gave up on a text of {} bytes: {}", text.size(), error_text(count)));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data.get());
  return std::optional<Match>(Match{bounds[0], bounds[1]});
}

}  // namespace motley
