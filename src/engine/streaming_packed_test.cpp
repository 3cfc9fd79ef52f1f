// Streamed from packs equals resident, bit for bit; damage fails a request and no more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/engine_test_util.h"
#include "experts/pack/pack_check.h"
#include "experts/pack/pack_writer.h"
#include "io/convert/quantize.h"
#include "model/decoder.h"
#include "support/test_files.h"

namespace motley {
namespace {

using testing::HasSubstr;

std::vector<float> all_logits(Engine& engine) {
  TraceRequest request;
  request.prompt = test_tokens(40, 3);
  request.continuation = test_tokens(6, 4);
  request.prefill_chunk = 16;
  return traced_logits(engine, request);
}

class StreamingPacked : public testing::Test {
 protected:
  std::unique_ptr<Engine> load(const std::string& model, EngineOptions options) {
    options.model = model;
    Result<std::unique_ptr<Engine>> engine = Engine::load(context_.get(), std::move(options));
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return engine.is_ok() ? std::move(engine).value() : nullptr;
  }

  void pack(const std::string& path, std::vector<std::string> directories, bool mirror = false) {
    const auto loaded = load_model(context_.get(), path, {.populate = false, .experts_only = true});
    ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
    const PackModel model{.checkpoint = &loaded->weights.checkpoint(),
                          .layers = model_experts(loaded->spec, loaded->weights)};
    const auto written = write_packs(context_.get(), model,
                                     {.directories = std::move(directories), .mirror = mirror});
    ASSERT_TRUE(written.is_ok()) << written.status().message();
  }

  // Every byte of a layer's records, so that whatever a step reads of it is wrong.
  void damage(const std::string& file) {
    std::vector<std::byte> bytes = out_.read(file);
    for (size_t i = 0; i < bytes.size(); i += 64) bytes[i] ^= std::byte{1};
    out_.write(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  OwnedContext context_{{.threads = 2, .pin = false}};
  TemporaryDirectory out_;
};

TEST_F(StreamingPacked, EveryKindOfPackGivesTheBitsOfTheResidentModel) {
  const std::string four_bits = out_ / "mlx4";
  ASSERT_TRUE(quantize_checkpoint(context_.get(), tiny_fixture(), {.standard = {4, 64}},
                                  {.directory = four_bits})
                  .is_ok());
  for (const std::string& model : {tiny_fixture(), four_bits}) {
    const std::string name = out_ / std::filesystem::path(model).filename().string();
    const std::vector<std::vector<std::string>> packs = {
        {name + "-one"}, {name + "-a", name + "-b"}, {name + "-m", name + "-n"}};
    ASSERT_NO_FATAL_FAILURE(pack(model, packs[0]));
    ASSERT_NO_FATAL_FAILURE(pack(model, packs[1]));
    ASSERT_NO_FATAL_FAILURE(pack(model, packs[2], /*mirror=*/true));
    const auto resident = load(model, {});
    ASSERT_NE(resident, nullptr);
    const std::vector<float> expected = all_logits(*resident);
    for (const std::vector<std::string>& packed : packs) {
      const bool check = &packed != &packs[0];
      // What look-ahead has read and cancelled is not checked, so one runs without it.
      const bool look_ahead = &packed != &packs[1];
      EngineOptions options{.expert_cache = {.share = 0.5}, .packed = packed, .check = check};
      options.look_ahead = look_ahead;
      const auto streamed = load(model, std::move(options));
      ASSERT_NE(streamed, nullptr);
      EXPECT_TRUE(same_bits(all_logits(*streamed), expected)) << packed.front();
      const StreamStats stats = streamed->streamed_experts()->stats();
      EXPECT_GT(stats.read_bytes, 0);
      EXPECT_LE(stats.guarded.checked_bytes, stats.read_bytes);
      if (!check) {
        EXPECT_EQ(stats.guarded.checked_bytes, 0);
      } else if (look_ahead) {
        EXPECT_GT(stats.guarded.checked_bytes, stats.read_bytes / 2);
      } else {
        EXPECT_EQ(stats.guarded.checked_bytes, stats.read_bytes);
      }
    }
  }
}

TEST_F(StreamingPacked, DamageFailsARequestAndAMirrorHealsIt) {
  ASSERT_NO_FATAL_FAILURE(pack(tiny_fixture(), {out_ / "a"}));
  ASSERT_NO_FATAL_FAILURE(pack(tiny_fixture(), {out_ / "b"}));
  const auto resident = load(tiny_fixture(), {});
  ASSERT_NE(resident, nullptr);
  const std::vector<float> expected = all_logits(*resident);
  damage("a/layer-00001.experts");
  const auto alone =
      load(tiny_fixture(), {.expert_cache = {.share = 0.5}, .packed = {out_ / "a"}, .check = true});
  ASSERT_NE(alone, nullptr);
  for (int round = 0; round < 2; ++round) {
    const auto failed = trace_sequence(*alone, {.prompt = test_tokens(3, 1)});
    EXPECT_EQ(failed.status().code(), StatusCode::kIo);
    EXPECT_THAT(failed.status().message(), HasSubstr(" of layer 1: "));
    EXPECT_THAT(failed.status().message(), HasSubstr("/a/layer-00001.experts: "));
    EXPECT_THAT(failed.status().message(), HasSubstr("bytes from offset "));
  }
  const auto mirrored =
      load(tiny_fixture(),
           {.expert_cache = {.share = 0.5}, .packed = {out_ / "a", out_ / "b"}, .check = true});
  ASSERT_NE(mirrored, nullptr);
  EXPECT_TRUE(same_bits(all_logits(*mirrored), expected));
  EXPECT_GT(mirrored->streamed_experts()->stats().guarded.rescued, 0);
}

TEST_F(StreamingPacked, ForeignAndPartialPacksAreRefusedInOneLine) {
  const auto refusal = [&](const std::string& directory) {
    EngineOptions options{.model = tiny_fixture(), .expert_cache = {.share = 0.5}};
    options.packed = {directory};
    return Engine::load(context_.get(), std::move(options)).status().message();
  };
  EXPECT_THAT(refusal(out_ / "nowhere"), HasSubstr("/nowhere: no such directory"));
  EXPECT_THAT(refusal(out_.path()), HasSubstr("is no pack"));
  ASSERT_NO_FATAL_FAILURE(pack(tiny_fixture(), {out_ / "a", out_ / "b"}));
  EXPECT_THAT(refusal(out_ / "b"), HasSubstr("part 1 is not given"));
}

}  // namespace
}  // namespace motley
