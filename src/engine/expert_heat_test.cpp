#include "engine/expert_heat.h"

#include "engine/engine_test_util.h"
#include "support/test_files.h"

namespace motley {
namespace {

class ExpertHeat : public testing::Test {
 protected:
  std::unique_ptr<Engine> open() {
    return load_tiny(context_, {.expert_cache = {.share = 0.5}, .heat_folder = folder_ / "heat"});
  }
  std::vector<float> run(Engine& engine) {
    TraceRequest request;
    request.prompt = test_tokens(20, 3);
    request.continuation = test_tokens(20, 4);
    return traced_logits(engine, request);
  }
  std::string path(const Engine& engine) {
    return heat_name(engine.model(), engine.streamed_experts()->cache_shape(), folder_ / "heat")
        .path;
  }

  OwnedContext context_{{.threads = 2, .pin = false}};
  TemporaryDirectory folder_;
};

TEST_F(ExpertHeat, ARunBeginsWithWhatTheLastOneLearned) {
  const auto first = open();
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(first->save_heat().is_ok());
  EXPECT_FALSE(std::filesystem::exists(path(*first))) << "nothing was learned";
  const std::vector<float> expected = run(*first);
  ASSERT_TRUE(first->save_heat().is_ok());
  const auto second = open();
  ASSERT_NE(second, nullptr);
  const std::vector<float> before = first->streamed_experts()->heat();
  const std::vector<float> after = second->streamed_experts()->heat();
  ASSERT_EQ(before.size(), after.size());
  EXPECT_GT(*std::max_element(after.begin(), after.end()), 0.3F);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], after[i], 1e-3) << i;
  EXPECT_TRUE(same_bits(run(*second), expected)) << "heat never changes a result";
}

TEST_F(ExpertHeat, ADamagedFileIsLeftAside) {
  const auto first = open();
  ASSERT_NE(first, nullptr);
  const std::vector<float> expected = run(*first);
  ASSERT_TRUE(first->save_heat().is_ok());
  folder_.write("heat/" + std::filesystem::path(path(*first)).filename().string(), "not heat");
  const auto second = open();
  ASSERT_NE(second, nullptr);
  const std::vector<float> heat = second->streamed_experts()->heat();
  EXPECT_EQ(*std::max_element(heat.begin(), heat.end()), 0);
  EXPECT_TRUE(same_bits(run(*second), expected));
}

TEST_F(ExpertHeat, WithoutAFolderNothingIsKept) {
  const auto engine = load_tiny(context_, {.expert_cache = {.share = 0.5}});
  ASSERT_NE(engine, nullptr);
  run(*engine);
  EXPECT_TRUE(engine->save_heat().is_ok());
}

}  // namespace
}  // namespace motley
