#include "engine/route_trace_recorder.h"

#include "engine/engine_test_util.h"
#include "support/test_files.h"

namespace motley {
namespace {

// What the router chose, as an observer that looks at everything sees it.
class AllRoutes final : public StepObserver {
 public:
  bool wants_activations() const override { return true; }
  void routing(int layer, const Batch& batch, const Routing& routing) override {
    for (const BatchSegment& segment : batch.segments) {
      for (int32_t row = 0; row < segment.rows.rows; ++row) {
        const auto* ids = routing.experts.as<int32_t>();
        const int64_t top = routing.experts.shape[1];
        const int64_t first = (segment.rows.first_row + row) * top;
        auto& of_token = chosen[segment.rows.first_position.value + row];
        of_token.resize(static_cast<size_t>((layer + 1) * top));
        std::copy_n(ids + first, top, of_token.end() - top);
      }
    }
  }
  std::map<int64_t, std::vector<int32_t>> chosen;  // by position
};

void generate(Engine& engine, StepObserver& observer) {
  Sequence sequence = engine.create_sequence().value();
  sequence.sync(test_tokens(90, 5));
  Scheduler scheduler(engine, {.prefill_chunk = 32, .observer = &observer});
  RecordingListener listener;
  ASSERT_TRUE(scheduler.submit(sequence, {.max_new_tokens = 5}, listener).is_ok());
  scheduler.run_until_idle();
  ASSERT_TRUE(listener.status.is_ok());
}

// Chunks of a resident model, and the sweep of a streamed one.
TEST(RouteTraceRecorder, WritesEveryTokenOnceHoweverThePromptIsRun) {
  OwnedContext context({.threads = 2, .pin = false});
  const TemporaryDirectory folder;
  AllRoutes all;
  for (const double share : {0.0, 0.5}) {
    const auto engine = load_tiny(context, {.expert_cache = {.share = share}});
    ASSERT_NE(engine, nullptr);
    if (share == 0) generate(*engine, all);
    const std::string path = folder / "routes";
    auto recorder = RouteTraceRecorder::create(context.faults(), path, engine->spec());
    ASSERT_TRUE(recorder.is_ok()) << recorder.status().message();
    generate(*engine, *recorder);
    ASSERT_TRUE(recorder->finish().is_ok());
    const auto trace = read_route_trace(context.faults(), path);
    ASSERT_TRUE(trace.is_ok()) << trace.status().message();
    ASSERT_EQ(trace->tokens(), 94);  // the last token generated is not run
    EXPECT_EQ(recorder->tokens(), 94);
    for (int64_t token = 0; token < trace->tokens(); ++token) {
      EXPECT_EQ(trace->roles[static_cast<size_t>(token)],
                token < 90 ? RouteRole::kPrefill : RouteRole::kDecode);
      std::vector<int32_t> ids;
      for (int layer = 0; layer < trace->shape.layers; ++layer) {
        for (const uint16_t id : trace->of(token, layer)) ids.push_back(id);
      }
      EXPECT_EQ(ids, all.chosen[token]) << token;
    }
  }
}

TEST(RouteTraceRecorder, AFileThatCannotBeWrittenIsAnError) {
  OwnedContext context({.threads = 1, .pin = false});
  const auto engine = load_tiny(context, {});
  ASSERT_NE(engine, nullptr);
  const auto missing =
      RouteTraceRecorder::create(context.faults(), "/no/such/folder/routes", engine->spec());
  ASSERT_FALSE(missing.is_ok());
  EXPECT_NE(missing.status().message().find("/no/such/folder/routes"), std::string::npos);
  const TemporaryDirectory folder;
  auto recorder = RouteTraceRecorder::create(context.faults(), folder / "routes", engine->spec());
  ASSERT_TRUE(recorder.is_ok());
  generate(*engine, *recorder);
  context.faults().arm("io.write", 1, io_error("routes", ENOSPC));
  EXPECT_FALSE(recorder->finish().is_ok());
}

}  // namespace
}  // namespace motley
