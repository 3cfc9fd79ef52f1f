// How drafts fare on a trained model: the share that is right, and that sampling keeps its
// distribution. In the long form (scripts/verify-drafts) with 20,000 samples.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/owned_context.h"
#include "engine/draft/draft_test_util.h"
#include "spec/config_json.h"
#include "support/random_cases.h"
#include "text/tokenizer.h"

namespace motley {
namespace {

const std::string kRoot = MOTLEY_SOURCE_DIR;
const std::string kPocket = kRoot + "/models/pocket";
// Conditional acceptance by place of the originals in float32, measured by the models' makers over
// twice as many chats; 150 to 280 trials a place, so that each is good to 0.03.
using Acceptance = std::array<double, 4>;
constexpr Acceptance kGatedDelta = {0.885, 0.937, 0.949, 0.918};
constexpr Acceptance kLatent = {0.874, 0.966, 0.954, 0.917};

struct KnownModel {
  std::string path;
  Acceptance acceptance;
};
const std::array kModels = {KnownModel{kPocket, kGatedDelta},
                            KnownModel{kRoot + "/../shared/models/pocket-qwen35", kGatedDelta},
                            KnownModel{kRoot + "/../shared/models/pocket-glm53", kLatent}};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::unique_ptr<Engine> load(OwnedContext& context, const std::string& model,
                             NumericProfile profile) {
  EngineOptions options = with_drafts({.model = model, .profile = profile}, 4);
  Result<std::unique_ptr<Engine>> engine = Engine::load(context.get(), std::move(options));
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return engine.is_ok() ? std::move(engine).value() : nullptr;
}

// Up to 80 greedy tokens of the first answer of every chat, with four drafts.
DraftStats acceptance(Engine& engine, const std::string& model) {
  const Tokenizer tokenizer = Tokenizer::load(model + "/tokenizer.json").value();
  const std::string list = read_file(kRoot + "/tests/fixtures/pocket/chats.json");
  const ConfigJson json = ConfigJson::parse("{\"chats\": " + list + "}", "chats.json").value();
  const std::vector<std::string> chats = json.root().texts("chats").value();
  const std::string header = "<|im_start|>assistant\n";
  DraftStats all;
  for (const std::string& chat : chats) {
    const std::string prompt = chat.substr(0, chat.find(header) + header.size());
    const auto tokens = tokenizer.encode(prompt, {.parse_special = true}).value();
    DraftRun run{.request = {.max_new_tokens = 80, .stop_tokens = engine.spec().eos_tokens},
                 .options = {.drafts = 4}};
    all += generate(engine, {tokens.begin(), tokens.end()}, run).stats.drafts;
  }
  return all;
}

class DraftAcceptance : public testing::TestWithParam<NumericProfile> {};

// A wrong draft layer changes no token; it shows here.
TEST_P(DraftAcceptance, IsWhatTheModelWasMadeWith) {
  OwnedContext context({.threads = 1, .pin = false});
  for (const auto& [model, acceptances] : kModels) {
    if (!std::filesystem::exists(model + "/config.json")) continue;
    const auto engine = load(context, model, GetParam());
    const DraftStats stats = acceptance(*engine, model);
    fmt::print("{} {}: {}\n", model, engine->numerics_name(), draft_text(stats));
    for (size_t place = 0; place < acceptances.size(); ++place) {
      // Half of the chats that the known figures are of: 0.04, and the noise of fewer trials.
      const double known = acceptances[place];
      const double noise = std::sqrt(known * (1 - known) / static_cast<double>(stats.tried[place]));
      EXPECT_GT(stats.rate(static_cast<int>(place)), known - 0.04 - noise) << model << " " << place;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Profiles, DraftAcceptance,
                         testing::Values(NumericProfile::kExact, NumericProfile::kFast));

// Probability of a chi-square value at least as large (Wilson and Hilferty).
double chi_square_p(double value, double freedom) {
  const double spread = 2 / (9 * freedom);
  const double z = (std::cbrt(value / freedom) - (1 - spread)) / std::sqrt(spread);
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

constexpr size_t kBins = 32;
constexpr size_t kLength = 4;  // the last tokens come from verified drafts

// Which token came at each place, by its id modulo the bins, over `samples` seeds from `first` on.
std::array<std::array<double, kBins>, kLength> histogram(Engine& engine, int drafts, int64_t first,
                                                         int64_t samples, DraftStats* stats) {
  std::array<std::array<double, kBins>, kLength> counts{};
  Sequence sequence = engine.create_sequence().value();
  for (int64_t i = 0; i < samples; ++i) {
    sequence.sync(test_tokens(3, 2));
    DraftRun run{
        .request = {.sampling = {.temperature = 0.8, .seed = static_cast<uint64_t>(first + i)},
                    .max_new_tokens = kLength},
        .options = {.drafts = drafts}};
    const DraftTestListener listener = generate_on(engine, sequence, run);
    *stats += listener.stats.drafts;
    for (size_t place = 0; place < kLength; ++place) {
      ++counts[place][static_cast<size_t>(listener.tokens[place]) % kBins];
    }
  }
  return counts;
}

TEST(DraftSampling, KeepsTheDistribution) {
  if (!std::filesystem::exists(kPocket + "/config.json")) GTEST_SKIP() << "no models/pocket";
  OwnedContext context({.threads = 1, .pin = false});
  const auto engine = load(context, kPocket, NumericProfile::kFast);
  const int64_t samples = from_environment("MOTLEY_DRAFT_SAMPLES", random_cases<int64_t>(1000));
  DraftStats stats;
  const auto with = histogram(*engine, 3, 0, samples, &stats);
  const auto without = histogram(*engine, 0, samples, samples, &stats);  // other seeds
  fmt::print("{}\n", draft_text(stats));
  EXPECT_GT(stats.accepted_total(), samples / 10) << "drafts hardly took part";
  for (size_t place = 0; place < kLength; ++place) {
    double value = 0;
    double freedom = -1;
    for (size_t bin = 0; bin < kBins; ++bin) {
      const double sum = with[place][bin] + without[place][bin];
      if (sum == 0) continue;
      const double difference = with[place][bin] - without[place][bin];
      value += difference * difference / sum;
      freedom += 1;
    }
    const double p = chi_square_p(value, freedom);
    fmt::print(
        "token {}: {} samples with and {} without drafts, chi-square {:.1f} at {:.0f} "
        "degrees of freedom, p = {:.3f}\n",
        place + 1, samples, samples, value, freedom, p);
    EXPECT_GT(p, 0.001) << "token " << place + 1;
  }
}

}  // namespace
}  // namespace motley
