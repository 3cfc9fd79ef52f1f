// Models whose weights are block-scaled floats, of every family: written, read, run resident and
// streamed with the same bits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/owned_context.h"
#include "engine/engine_test_util.h"
#include "io/convert/quantize.h"

namespace motley {
namespace {

struct BlockFloatCase {
  const char* fixture;
  const char* format;
};

class BlockFloatEngine : public testing::TestWithParam<BlockFloatCase> {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    const Status written =
        quantize_checkpoint(context_.get(), tiny_fixture(GetParam().fixture),
                            parse_format(GetParam().format).value(), {.directory = folder_});
    ASSERT_TRUE(written.is_ok()) << written.message();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Engine> load(EngineOptions options) {
    options.model = folder_;
    Result<std::unique_ptr<Engine>> engine = Engine::load(context_.get(), std::move(options));
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return engine.is_ok() ? std::move(engine).value() : nullptr;
  }

  static std::vector<float> all_logits(Engine& engine, int64_t chunk) {
    TraceRequest request;
    request.prompt = test_tokens(70, 3);
    request.continuation = test_tokens(12, 4);
    request.prefill_chunk = chunk;
    return traced_logits(engine, request);
  }

  OwnedContext context_{{.threads = 2, .pin = false}};
  std::string folder_ = testing::TempDir() + "block_float_" + std::to_string(getpid()) + "_" +
                        GetParam().fixture + "_" + GetParam().format;
};

TEST_P(BlockFloatEngine, BitsDoNotDependOnChunksOrStreaming) {
  for (const NumericProfile profile : {NumericProfile::kExact, NumericProfile::kFast}) {
    const std::unique_ptr<Engine> resident = load({.profile = profile});
    ASSERT_NE(resident, nullptr);
    const std::vector<float> whole = all_logits(*resident, 70);
    ASSERT_FALSE(whole.empty());
    EXPECT_TRUE(same_bits(all_logits(*resident, 7), whole));
    const std::unique_ptr<Engine> streamed =
        load({.profile = profile, .expert_cache = {.share = 0.5}});
    ASSERT_NE(streamed, nullptr);
    ASSERT_NE(streamed->streamed_experts(), nullptr);
    EXPECT_TRUE(same_bits(all_logits(*streamed, 70), whole));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, BlockFloatEngine,
    testing::Values(BlockFloatCase{"tiny-qwen35", "fp8"}, BlockFloatCase{"tiny-qwen35", "nvfp4"},
                    BlockFloatCase{"tiny-qwen35", "nvfp4-packed"},
                    BlockFloatCase{"tiny-qwen35", "mxfp4"}, BlockFloatCase{"tiny-glm52", "fp8"},
                    BlockFloatCase{"tiny-glm52", "nvfp4"}, BlockFloatCase{"tiny-glm52", "mxfp4"},
                    BlockFloatCase{"tiny-glm53", "fp8"},
                    BlockFloatCase{"tiny-glm53", "nvfp4-packed"}),
    [](const testing::TestParamInfo<BlockFloatCase>& tested) {
      std::string name = std::string(tested.param.fixture) + "_" + tested.param.format;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace motley
