// Packing with the real program: killed, stopped, out of room, damaged; and streaming from packs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "e2e/process.h"

namespace motley::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::map<std::string, std::string> contents(const std::string& pack) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(pack)) {
    const std::string name = entry.path().filename().string();
    if (name != ".motley-lock") files[name] = read_file(entry.path().string());
  }
  return files;
}

void flip_byte(const std::string& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const auto byte = static_cast<char>(file.get() ^ 4);
  file.seekp(at);
  file.put(byte);
}

// Some 80 MB of experts, so that there is time to stop the writer.
std::string slow_model(const TemporaryFolder& folder) {
  Json config = Json::parse(read_file(pocket_model() + "/config.json"));
  config.erase("quantization");
  config.erase("quantization_config");
  config["text_config"]["num_experts"] = 256;
  config["text_config"]["moe_intermediate_size"] = 512;
  const std::string path = folder.write("config.json", config.dump());
  std::string model = folder.path() + "/model";
  const Outcome made =
      run({"synth", "--config", path, "--format", "mlx4", "--layers", "2", "--no-draft", model});
  EXPECT_EQ(made.exit, 0) << made.err;
  return model;
}

TEST(Pack, StreamsTheTokensOfTheModel) {
  const TemporaryFolder folder;
  const std::string one = folder.path() + "/one";
  const std::string left = folder.path() + "/left";
  const std::string right = folder.path() + "/right";
  const Outcome packed = run({"pack", pocket_model(), one, "--force"});
  ASSERT_EQ(packed.exit, 0) << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("use them: motley run " + pocket_model() + " --packed " + one));
  const Outcome split = run({"pack", pocket_model(), left, right, "--force", "--json"});
  ASSERT_EQ(split.exit, 0) << split.err;
  const Json result = Json::parse(split.out);
  EXPECT_EQ(result.at("written"), result.at("records"));
  EXPECT_TRUE(result.at("probe").is_null());

  const std::vector<std::string> words = {"run",    pocket_model(), "-p",     "Who are you?",
                                          "-n",     "30",           "--temp", "0",
                                          "--json", "--ignore-eos"};
  const Outcome resident = run(words);
  ASSERT_EQ(resident.exit, 0) << resident.err;
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--packed", one, "--check"},
        {"--packed", left, "--packed", right, "--io", "pread"}}) {
    std::vector<std::string> streamed = words;
    streamed.insert(streamed.end(), {"--expert-cache", "25%"});
    streamed.insert(streamed.end(), options.begin(), options.end());
    const Outcome outcome = run(streamed);
    ASSERT_EQ(outcome.exit, 0) << outcome.err;
    EXPECT_EQ(Json::parse(outcome.out).at("tokens"), Json::parse(resident.out).at("tokens"));
  }

  // All experts in memory: the pack is not read, and that is said.
  std::vector<std::string> idle = words;
  idle.insert(idle.end(), {"--packed", one});
  EXPECT_THAT(run(idle).err, HasSubstr("is not read"));
}

TEST(Pack, KilledAtAnyMomentItGoesOn) {
  const TemporaryFolder folder;
  const std::string model = slow_model(folder);
  const std::string whole = folder.path() + "/whole";
  const std::string out = folder.path() + "/out";
  ASSERT_EQ(run({"pack", model, whole, "--force"}).exit, 0);
  std::mt19937_64 random(std::random_device{}());
  int killed = 0;
  for (int round = 0; round < 5; ++round) {
    Terminal program({"pack", model, out, "--force"});
    const auto delay_ms = static_cast<int64_t>(random() % 150);
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    ASSERT_EQ(kill(program.process(), SIGKILL), 0);
    const int exit = program.finish();
    ASSERT_TRUE(exit == 0 || exit == 128 + SIGKILL) << exit << program.screen();
    killed += exit == 0 ? 0 : 1;
    if (exit == 0) break;
  }
  EXPECT_GT(killed, 0);
  const Outcome last = run({"pack", model, out, "--json"});
  ASSERT_EQ(last.exit, 0) << last.err;
  const Json result = Json::parse(last.out);
  EXPECT_EQ(result.at("kept").get<int>() + result.at("written").get<int>(), result.at("records"));
  EXPECT_EQ(contents(out), contents(whole));
  EXPECT_EQ(run({"pack", "--verify", out}).exit, 0);
}

TEST(Pack, CtrlCKeepsWhatIsWritten) {
  const TemporaryFolder folder;
  const std::string model = slow_model(folder);
  const std::string out = folder.path() + "/out";
  for (const int signal : {SIGINT, SIGTERM}) {
    fs::remove_all(out);
    Terminal program({"pack", model, out, "--force"});
    for (int i = 0; i < 20'000 && !exists(out + "/layer-00000.experts"); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(kill(program.process(), signal), 0);
    const int exit = program.finish();
    if (exit == 0) continue;  // it was faster
    EXPECT_EQ(exit, 130) << program.screen();
    EXPECT_THAT(program.screen(), HasSubstr("the same command goes on"));
    const Outcome partial =
        run({"run", model, "--expert-cache", "25%", "--packed", out, "-p", "x"});
    EXPECT_NE(partial.exit, 0);
    EXPECT_EQ(run({"pack", model, out}).exit, 0);
  }
}

TEST(Pack, OutOfRoomIsALineAndTheRestIsKept) {
  const TemporaryFolder folder;
  const std::string out = folder.path() + "/out";
  RunOptions options;
  options.program = "/bin/sh";
  const Outcome limited = run_with({"-c", "ulimit -f 64; exec \"$0\" pack \"$1\" \"$2\" --force",
                                    MOTLEY_PROGRAM, pocket_model(), out},
                                   options);
  EXPECT_EQ(limited.exit, 1);
  EXPECT_THAT(limited.err, HasSubstr("/out/layer-00000.experts: File too large"));
  EXPECT_EQ(run({"pack", pocket_model(), out}).exit, 0);

  // A disk of its own, where the system lets us mount one.
  const Outcome small =
      run_with({"-c",
                "exec unshare --user --map-root-user --mount sh -c 'mount -t tmpfs -o size=1m none "
                "\"$1\" && exec \"$2\" pack \"$3\" \"$1/pack\" --force' sh \"$0\" \"$1\" \"$2\"",
                folder.path(), MOTLEY_PROGRAM, pocket_model()},
               options);
  if (small.err.find("motley: ") == std::string::npos) GTEST_SKIP() << small.err;
  EXPECT_EQ(small.exit, 1);
  EXPECT_THAT(small.err, HasSubstr("/pack: the disk is too small: "));
  EXPECT_THAT(small.err, HasSubstr(" are missing"));
}

TEST(Pack, VerifyFindsDamageAndPackRepairsIt) {
  const TemporaryFolder folder;
  const std::string out = folder.path() + "/out";
  ASSERT_EQ(run({"pack", pocket_model(), out, "--force"}).exit, 0);
  const auto whole = contents(out);
  flip_byte(out + "/layer-00003.experts", 5000);
  const std::vector<std::string> words = {
      "run",     pocket_model(), "--expert-cache",      "25%", "--packed", out,
      "--check", "-p",           "Hello, who are you?", "-n",  "20"};
  const Outcome verified = run({"pack", "--verify", out});
  EXPECT_EQ(verified.exit, 1);
  EXPECT_THAT(verified.out, HasSubstr("layer 3 expert 0 "));
  EXPECT_THAT(verified.out, HasSubstr("1 damaged, 0 missing"));
  const Outcome refused = run(words);
  EXPECT_EQ(refused.exit, 1);
  EXPECT_THAT(refused.err, HasSubstr("1 experts are not written or damaged"));
  const Json again = Json::parse(run({"pack", "--verify", out, "--json"}).out);
  EXPECT_EQ(again.at("packs").at(0).at("missing"), 1);
  const Outcome repaired = run({"pack", pocket_model(), out});
  EXPECT_EQ(repaired.exit, 0);
  EXPECT_THAT(repaired.out, HasSubstr(": 1 written"));
  EXPECT_EQ(contents(out), whole);
  EXPECT_EQ(run(words).exit, 0);
}

TEST(Pack, RefusesWhatMakesNoSense) {
  const auto usage = [](std::vector<std::string> words, const std::string& text) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.exit, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(text));
  };
  usage({"pack"}, "MODEL is missing");
  usage({"pack", "m"}, "OUT is missing");
  usage({"pack", "m", "o", "o"}, "named twice");
  usage({"pack", "m", "o", "--mirror"}, "needs several OUT");
  usage({"pack", "m", "--verify", "o"}, "--verify DIR stands alone");
  usage({"pack", "--verify", "o", "--force"}, "--force has no effect with --verify");
  usage({"run", pocket_model(), "--check", "-p", "x"}, "--check needs --packed");
  const Outcome none = run({"pack", "--verify", "/nowhere"});
  EXPECT_EQ(none.exit, 1);
  EXPECT_THAT(none.err, HasSubstr("/nowhere: no such directory"));
}

}  // namespace
}  // namespace motley::e2e
