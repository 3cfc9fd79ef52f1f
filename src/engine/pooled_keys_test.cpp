// A model whose indexers score pools of tokens: what a whole model shows that the op's own tests
// cannot.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/owned_context.h"
#include "engine/draft/draft_test_util.h"
#include "engine/step_runner.h"
#include "engine/verify/verify_expected.h"
#include "support/test_files.h"

namespace motley {
namespace {

std::string pooled_fixture() {
  return std::string(MOTLEY_SOURCE_DIR) + "/tests/fixtures/tiny-glm53";
}

std::unique_ptr<Engine> load_pooled(OwnedContext& context, EngineOptions options,
                                    const std::string& model = pooled_fixture()) {
  options.model = model;
  Result<std::unique_ptr<Engine>> engine = Engine::load(context.get(), std::move(options));
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return engine.is_ok() ? std::move(engine).value() : nullptr;
}

const IndexerSpec& first_indexer(const Engine& engine) {
  for (const LayerSpec& layer : engine.spec().layers) {
    const auto* latent = std::get_if<LatentAttentionSpec>(&layer.mixer);
    if (latent != nullptr) return latent->indexer;
  }
  MOTLEY_CHECK(false, "no indexer");
}

TEST(PooledKeys, EveryTensorOfTheFixtureIsReproduced) {
  OwnedContext context({.threads = 2, .pin = false});
  EngineOptions options;
  options.profile = NumericProfile::kExact;
  options.drafts = true;
  const auto engine = load_pooled(context, options);
  const std::string file = pooled_fixture() + "/expected.safetensors";
  const ExpectedTensors expected = ExpectedTensors::open(context.get(), file).value();
  const Result<VerifyReport> report = verify_expected(*engine, expected, {});
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_TRUE(report->passed()) << report->table();
}

// The most drafts that there can be: the ring of the open pool holds just enough beyond it, in the
// trunk's layers and in the draft layer's.
TEST(PooledKeys, TheRingOutlastsTheMostDrafts) {
  OwnedContext context({.threads = 2, .pin = false});
  DraftRun run{.request = {.max_new_tokens = 120}};
  const std::vector<int32_t> prompt = test_tokens(33, 8);
  const auto plain = generate(*load_pooled(context, {}), prompt, run);
  const auto engine = load_pooled(context, with_drafts({}, kMostDrafts));
  run.options.drafts = kMostDrafts;
  for (const double wrong : {0.1, 0.4, 1.0}) {
    run.options.replace_guess =
        oracle(plain.tokens, std::ssize(prompt), wrong, engine->spec().vocab_size);
    EXPECT_TRUE(same_output(generate(*engine, prompt, run), plain)) << wrong;
  }
}

// What a row sees: whole pools that are complete, as many as may be chosen, and the open pool.
class SelectionProbe : public StepObserver {
 public:
  bool wants_activations() const override { return true; }
  void key_selection(int layer, const Batch& batch, const KeySelection& selection) override {
    (void)layer;
    rows.clear();
    everything.clear();
    for (int64_t row = 0; row < batch.rows(); ++row) {
      const int32_t count = *selection.counts.row<int32_t>(row);
      const int32_t* first = selection.positions.row<int32_t>(row);
      rows.emplace_back(first, first + std::max(count, 0));
      everything.push_back(count == kEveryKey);
    }
  }
  // Tokens that name more pools than there is room for, and one that is not there yet.
  ConstTensorView index_scores(int, const Batch&, const IndexScoresView& scores) override {
    if (!forces) return {};
    forced.assign(static_cast<size_t>(scores.scores.rows() * scores.width), 0);
    for (int64_t row = 0; row < scores.scores.rows(); ++row) {
      for (int64_t i = 0; i < scores.width; ++i) {
        forced[static_cast<size_t>(row * scores.width + i)] = static_cast<int32_t>(
            i + 1 < scores.width ? 4 * i : std::numeric_limits<int32_t>::max());
      }
    }
    return view_of(static_cast<const int32_t*>(forced.data()),
                   {scores.scores.rows(), scores.width});
  }

  bool forces = false;
  std::vector<int32_t> forced;
  std::vector<std::vector<int32_t>> rows;  // of the layer that chose last
  std::vector<bool> everything;
};

void run_prompt(Engine& engine, int64_t rows, SelectionProbe* probe) {
  Sequence sequence = engine.create_sequence().value();
  StepRunner runner(engine);
  Batch batch;
  batch.add(RowRole::kPrefill, sequence.state(), test_tokens(rows, 5), {0});
  std::vector<float> logits;
  const std::vector<int32_t> last = {static_cast<int32_t>(rows - 1)};
  ASSERT_TRUE(runner.run(batch, last, *probe, &logits).is_ok());
}

TEST(PooledKeys, RowsSeeWholePoolsAndTheOpenOne) {
  OwnedContext context({.threads = 1});
  const auto engine = load_pooled(context, {});
  const IndexerSpec& indexer = first_indexer(*engine);
  SelectionProbe probe;
  run_prompt(*engine, 90, &probe);
  ASSERT_EQ(probe.rows.size(), 90u);
  int64_t without_itself = 0;
  for (int32_t t = 0; t < 90; ++t) {
    const std::vector<int32_t>& seen = probe.rows[static_cast<size_t>(t)];
    const int32_t open = (t + 1) / indexer.pool * indexer.pool;
    const bool sees_all = open <= indexer.top_k;
    EXPECT_EQ(probe.everything[static_cast<size_t>(t)], sees_all) << t;
    if (sees_all) continue;
    ASSERT_EQ(std::ssize(seen), indexer.top_k + t + 1 - open) << t;
    const auto pool = static_cast<size_t>(indexer.pool);
    for (size_t i = 0; i < static_cast<size_t>(indexer.top_k); i += pool) {
      EXPECT_EQ(seen[i] % indexer.pool, 0);
      EXPECT_EQ(seen[i + pool - 1], seen[i] + indexer.pool - 1);
      EXPECT_LT(seen[i], open);
    }
    without_itself += seen.back() != t ? 1 : 0;
  }
  EXPECT_GT(without_itself, 0) << "a row whose pool is complete may have lost it";
}

TEST(PooledKeys, ForcedTokensThatDoNotFitAreLeftOut) {
  OwnedContext context({.threads = 1});
  const auto engine = load_pooled(context, {});
  const IndexerSpec& indexer = first_indexer(*engine);
  SelectionProbe probe;
  probe.forces = true;
  run_prompt(*engine, 90, &probe);
  const std::vector<int32_t>& seen = probe.rows[89];
  ASSERT_EQ(std::ssize(seen), indexer.top_k + 2);
  for (int32_t i = 0; i < indexer.top_k; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  EXPECT_EQ(seen.back(), 89);
}

// A file whose pools are of another size than its configuration says is refused by the tensor.
TEST(PooledKeys, AWrongSizeOfPoolIsRefused) {
  OwnedContext context({.threads = 1});
  const TemporaryDirectory folder;
  std::filesystem::copy(pooled_fixture() + "/model.safetensors", folder / "model.safetensors");
  std::ifstream in(pooled_fixture() + "/config.json");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::string from = "\"index_kpool\": 4";
  const size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos);
  folder.write("config.json", text.replace(place, from.size(), "\"index_kpool\": 8"));
  EngineOptions options;
  options.model = folder.path();
  const auto engine = Engine::load(context.get(), options);
  ASSERT_FALSE(engine.is_ok());
  EXPECT_NE(engine.status().message().find("index_kpool_compress_ape"), std::string::npos)
      << engine.status().message();
}

}  // namespace
}  // namespace motley
