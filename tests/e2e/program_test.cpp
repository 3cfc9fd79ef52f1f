// The program as a whole: help that agrees with itself, signals, memory, conversion, installation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "e2e/large_model.h"
#include "e2e/process.h"

namespace motley::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

const std::string kTiny = std::string(MOTLEY_SOURCE_DIR) + "/tests/fixtures/tiny-qwen35";

Json json_of(const Words& words) {
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  return Json::parse(outcome.out, nullptr, false);
}

// The verbs as the main help lists them: two spaces, the name, spaces, a phrase.
Words verbs() {
  std::istringstream lines(run({"--help"}).out);
  static const std::regex row("^  ([a-z]+( [a-z]+)?)  +[^ ].*$");
  Words names;
  bool listing = false;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line.empty()) listing = false;
    if (listing && std::regex_match(line, match, row)) names.push_back(match[1]);
    if (line == "verbs:") listing = true;
  }
  return names;
}

Outcome help_of(const std::string& verb) {
  std::istringstream stream(verb);
  Words words{std::istream_iterator<std::string>(stream), {}};
  words.emplace_back("--help");
  return run(words);
}

// The flags that a help page describes: those at the start of a line.
std::set<std::string> flags_of(const std::string& help) {
  static const std::regex row("\n  (-[a-zA-Z], )?(--[a-z][a-z-]*)");
  std::set<std::string> flags;
  for (std::sregex_iterator it(help.begin(), help.end(), row), end; it != end; ++it) {
    flags.insert((*it)[2]);
  }
  flags.erase("--help");
  return flags;
}

TEST(Help, EveryVerbExplainsItself) {
  const Words names = verbs();
  EXPECT_THAT(names, ::testing::IsSupersetOf({"run", "inspect", "verify", "tokenize", "template",
                                              "bench model", "quantize", "pack", "synth"}));
  for (const std::string& verb : names) {
    if (verb == "help") continue;
    const Outcome help = help_of(verb);
    EXPECT_EQ(help.exit, 0) << verb;
    EXPECT_EQ(help.err, "") << verb;
    EXPECT_THAT(help.out, HasSubstr("usage: motley " + verb));
  }
}

TEST(Help, ManualPageAndCompletionsKnowEveryFlag) {
  const std::string manual = std::regex_replace(run({"man"}).out, std::regex(R"(\\-)"), "-");
  const std::string bash = run({"completion", "bash"}).out;
  for (const std::string& verb : verbs()) {
    if (verb == "help") continue;
    const std::set<std::string> flags = flags_of(help_of(verb).out);
    for (const std::string& flag : flags) {
      EXPECT_NE(manual.find(flag), std::string::npos) << verb << ' ' << flag << " in the manual";
      EXPECT_NE(bash.find(flag), std::string::npos) << verb << ' ' << flag << " in the completion";
    }
    if (verb == "run") {
      EXPECT_GT(flags.size(), 20U);
    }
  }
}

TEST(Help, VersionNamesRevisionCompilerAndComponents) {
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.exit, 0);
  EXPECT_EQ(version.err, "");
  static const std::regex form(
      "motley [0-9]+\\.[0-9]+\\.[0-9]+ \\([^)]+\\)\nbuilt with [^\n]+\n"
      "(  [^\n]+\n)+");
  EXPECT_TRUE(std::regex_match(version.out, form)) << version.out;
}

// The answer is begun, and `interrupt` gets the process.
Outcome interrupted_run(const std::function<void(int)>& interrupt) {
  RunOptions options;
  options.on_first_output = interrupt;
  return run_with(
      {"run", pocket_model(), "-p", "Go on.", "-n", "8000", "--ignore-eos", "--temp", "0"},
      options);
}

TEST(Interrupt, OnceStopsTheAnswerAndTheProgramEndsByItself) {
  const Outcome outcome = interrupted_run([](int process) { kill(process, SIGINT); });
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_EQ(outcome.exit, 130) << outcome.err;
  EXPECT_FALSE(outcome.out.empty());
  EXPECT_THAT(outcome.err, HasSubstr("tok/s"));  // what was done is still summed up
}

TEST(Interrupt, TwiceEndsTheProgramAtOnce) {
  // Two signals at once would be one, were they not pending in two places: of the process and of
  // its main thread. Stopped meanwhile, the program cannot end after the first.
  const Outcome outcome = interrupted_run([](int process) {
    kill(process, SIGSTOP);
    kill(process, SIGINT);
    syscall(SYS_tgkill, process, process, SIGINT);
    kill(process, SIGCONT);
  });
  EXPECT_EQ(outcome.signal, SIGINT);
  EXPECT_EQ(outcome.exit, 130);
  EXPECT_THAT(outcome.err, Not(HasSubstr("tok/s")));
}

TEST(Run, SpeedsBeginALineOfTheirOwnWhereBothOutputsAreOne) {
  RunOptions options;
  options.program = "/bin/sh";
  const Words words = {
      "-c",           "exec \"$@\" 2>&1", "sh", MOTLEY_PROGRAM, "run", pocket_model(), "-p",
      "Who are you?", "--temp",           "0"};
  EXPECT_THAT(run_with(words, options).out, HasSubstr(".\nprefill "));
  EXPECT_THAT(run({"run", pocket_model(), "-p", "Who are you?", "--temp", "0"}).out,
              ::testing::EndsWith("."));
}

TEST(Threads, ARefusedThreadIsOneLine) {
  if (!std::string(MOTLEY_SANITIZERS).empty()) GTEST_SKIP() << "sanitizers reserve address space";
  RunOptions options;
  options.program = "/bin/sh";
  const Outcome outcome = run_with(
      {"-c", "ulimit -v 400000; exec \"$@\"", "sh", MOTLEY_PROGRAM, "verify", "--threads", "256"},
      options);
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_EQ(outcome.exit, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err,
            "motley: cannot start 256 threads: Resource temporarily unavailable; give fewer with "
            "--threads\n");
}

TEST(Memory, PeakOfRunIsWeightsAndStateAnd300Megabytes) {
  if (!std::string(MOTLEY_SANITIZERS).empty()) GTEST_SKIP() << "sanitizers need memory themselves";
  const TemporaryFolder folder;
  if (fs::space(folder.path()).available < 2'000'000'000) GTEST_SKIP() << "needs 2 GB of disk";
  const std::string model = folder.path() + "/large";
  ASSERT_NO_FATAL_FAILURE(make_large_model(folder, model));
  const int64_t weights = bytes_of_weights(model);
  ASSERT_GT(weights, 500'000'000);  // a second copy of the weights is over the limit
  const Json report = json_of({"inspect", model, "--json"});
  int64_t state = 0;
  for (const Json& entry : report.at("state")) {
    state = std::max(state, entry.at("fixed_bytes").get<int64_t>() +
                                entry.at("bytes_per_token").get<int64_t>() *
                                    report.at("context_length").get<int64_t>());
  }
  const Outcome outcome =
      run({"run", model, "-p", "Go on.", "-n", "64", "--ignore-eos", "--temp", "0"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_GT(outcome.peak_bytes, 0);
  EXPECT_LE(outcome.peak_bytes, weights + state + 300'000'000);
}

TEST(Quantize, WritesWhatRunsAndDoesNotOverwrite) {
  const TemporaryFolder folder;
  const std::string out = folder.path() + "/q";
  const Outcome outcome = run({"quantize", kTiny, out, "--bits", "4", "--group", "32"});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(json_of({"inspect", out, "--json"}).at("family"), "qwen3_5_moe");
  EXPECT_LT(fs::file_size(out + "/model.safetensors"),
            fs::file_size(kTiny + "/model.safetensors") / 2);
  const Outcome again = run({"quantize", kTiny, out});
  EXPECT_EQ(again.exit, 1);
  EXPECT_THAT(again.err, HasSubstr(out));
}

TEST(Synth, MakesAModelThatVerifyAndBenchCanRun) {
  const TemporaryFolder folder;
  const std::string out = folder.path() + "/s";
  const Outcome outcome = run({"synth", "--config", kTiny + "/config.json", "--format", "bf16",
                               "--layers", "4", "--seed", "7", out});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  const Outcome verified = run({"verify", out});
  EXPECT_EQ(verified.exit, 0) << verified.out;
  const Json report = json_of({"bench", "model", out, "--prompt", "8", "--generate", "2",
                               "--repeat", "1", "--no-machine", "--json"});
  EXPECT_GT(report.at("decode_tokens_per_s").get<double>(), 0);
}

TEST(Verify, ADamagedWeightIsNoticed) {
  const TemporaryFolder folder;
  const std::string model = folder.path() + "/model";
  fs::copy(kTiny, model);
  std::string weights = read_file(model + "/model.safetensors");
  for (size_t i = weights.size() - 4096; i < weights.size(); i += 2) {
    weights[i] = static_cast<char>(weights[i] ^ 0x20);
  }
  folder.write("model/model.safetensors", weights);
  const Outcome outcome = run({"verify", model, "--expected", kTiny + "/expected.safetensors"});
  EXPECT_EQ(outcome.exit, 1) << outcome.out;
}

TEST(Install, TheInstalledProgramFindsItsModel) {
  const TemporaryFolder folder;
  const std::string prefix = folder.path() + "/usr";
  RunOptions options;
  options.program = MOTLEY_CMAKE;
  const Outcome install = run_with({"--install", MOTLEY_BINARY_DIR, "--prefix", prefix}, options);
  ASSERT_EQ(install.exit, 0) << install.err;
  for (const char* file :
       {"/share/man/man1/motley.1", "/share/bash-completion/completions/motley",
        "/share/zsh/site-functions/_motley", "/share/fish/vendor_completions.d/motley.fish",
        "/share/doc/motley/LICENSE", "/share/motley/models/pocket/config.json"}) {
    ASSERT_TRUE(fs::exists(prefix + file)) << file;
    EXPECT_GT(fs::file_size(prefix + file), 0U) << file;
  }
  options.program = prefix + "/bin/motley";
  const Outcome answer = run_with({"run", "-p", "Hello", "-n", "4", "--json"}, options);
  EXPECT_EQ(answer.exit, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr(prefix + "/share/motley/models/pocket"));
}

}  // namespace
}  // namespace motley::e2e
