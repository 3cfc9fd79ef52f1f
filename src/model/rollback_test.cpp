// Tentative rows of a whole model: any part of them may be committed, and what is left is bit for
// bit the state, and the next rows' outputs, of a sequence that never saw a draft.
#include <cstring>
#include <random>

#include "model/channel_delta_test_util.h"
#include "ops/cpu/cpu_backend.h"

namespace motley {
namespace {

constexpr int kMostRows = 9;

class Numbers {
 public:
  explicit Numbers(uint64_t seed) : engine_(seed) {}
  // In [low, high].
  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }

 private:
  std::mt19937_64 engine_;
};

struct RollbackCase {
  const char* name;
  bool kimi;
  bool cpu;
  DType kv;
  DeltaForm form;
};

class RollbackTest : public testing::TestWithParam<RollbackCase> {
 protected:
  static StateFormat format() {
    const RollbackCase& c = GetParam();
    return {.kv = c.kv,
            .recurrent = c.cpu ? DType::kF32 : DType::kF64,
            .chunked_delta = c.form == DeltaForm::kChunked,
            .tentative_rows = kMostRows};
  }
  static OpTable table() {
    return GetParam().cpu ? cpu_op_table(available_cpu_isas().back(), NumericProfile::kFast)
                          : reference_op_table();
  }
  static void change(ModelSpec* spec) {
    if (GetParam().kimi) use_kimi_layer(spec, true);
    skip_rest(spec, GetParam().kimi, false);
  }

  // Hidden states after all layers, as bytes.
  std::vector<std::byte> run(const Batch& batch) {
    const Arena::Scope scope(model_.stream().scratch());
    const TensorView hidden = model_.step().scratch({batch.rows(), TestModel::kHidden});
    decoder_.embed(model_.step(), batch.tokens, hidden);
    StepObserver nobody;
    EXPECT_TRUE(decoder_.run_layers(model_.step(), batch, hidden, nobody).is_ok());
    const int64_t bytes = hidden.shape.elements() * dtype_bytes(hidden.dtype);
    return {hidden.data, hidden.data + bytes};
  }
  std::vector<std::byte> run_rows(SequenceState& state, RowRole role,
                                  std::span<const int32_t> tokens, bool tentative = false) {
    Batch batch;
    if (tentative) {
      batch.add_tentative(state, tokens, {state.length()});
    } else {
      batch.add(role, state, tokens, {state.length()});
    }
    EXPECT_TRUE(batch.reserve().is_ok());
    return run(batch);
  }

  // All fixed pieces but the rings, which hold leftovers by design.
  void expect_same_state(SequenceState& a, SequenceState& b) {
    EXPECT_EQ(a.length(), b.length());
    for (const StateEntry& entry : model_.layout().entries) {
      const bool is_ring =
          entry.kind == StateKind::kReplayRing || entry.kind == StateKind::kWindowRing;
      if (entry.fixed_bytes == 0 || is_ring) continue;
      ASSERT_EQ(std::memcmp(a.fixed(entry.layer, entry.kind), b.fixed(entry.layer, entry.kind),
                            static_cast<size_t>(entry.fixed_bytes)),
                0)
          << "layer " << entry.layer << ": " << state_kind_name(entry.kind);
    }
  }

  // NaN in every cached key and value from the sequence's length on: nothing may read them.
  void poison_caches(SequenceState& state, int64_t reserved) {
    for (const StateEntry& entry : model_.layout().entries) {
      if (entry.kind != StateKind::kPagedKv) continue;
      const auto& mixer = model_.spec().layers[static_cast<size_t>(entry.layer)].mixer;
      const auto& attention = std::get<GatedAttentionSpec>(mixer);
      const PageLayout layout{
          .kv_heads = attention.kv_heads, .head_dim = attention.head_dim, .dtype = entry.dtype};
      const CacheView view = state.cache(entry.layer, entry.kind, layout, reserved);
      for (int64_t token = state.length(); token < reserved; ++token) {
        std::byte* page = view.pages[static_cast<size_t>(token / layout.tokens_per_page)];
        const auto slot = static_cast<int>(token % layout.tokens_per_page);
        for (int head = 0; head < layout.kv_heads; ++head) {
          for (const int64_t at :
               {layout.key_offset(head, slot), layout.value_offset(head, slot)}) {
            std::memset(page + at * dtype_bytes(layout.dtype), 0xFF,
                        static_cast<size_t>(layout.head_dim * dtype_bytes(layout.dtype)));
          }
        }
      }
    }
  }

  std::vector<int32_t> random_rows(Numbers& random, int64_t count) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<int32_t>(random.integer(0, TestModel::kVocab - 1)));
    }
    return tokens;
  }

  ModelUnderTest model_{kimi_model(), "", format(), table(), change};
  Decoder decoder_ = model_.decoder(GetParam().form);
};

TEST_P(RollbackTest, AnyPartOfTentativeRowsMayBecomeFinal) {
  Numbers random(4);
  StepObserver nobody;
  SequenceState state = model_.new_state();
  SequenceState plain = model_.new_state();
  const std::vector<int32_t> prompt = random_rows(random, 70);
  EXPECT_EQ(run_rows(state, RowRole::kPrefill, prompt), run_rows(plain, RowRole::kPrefill, prompt));
  for (int round = 0; round < 60; ++round) {
    const int64_t rows = random.integer(1, kMostRows);
    // The first decode row, final or not, folds what a chunked prompt carries: none may stay
    // behind.
    const auto accepted = static_cast<int32_t>(random.integer(round == 0 ? 1 : 0, rows));
    const std::vector<int32_t> tokens = random_rows(random, rows);
    const int64_t reserved = state.length() + rows;
    const auto out = run_rows(state, RowRole::kDecode, tokens, /*tentative=*/true);
    EXPECT_EQ(state.length(), plain.length()) << "nothing is final yet";
    decoder_.commit(model_.step(), state, accepted, nobody);
    poison_caches(state, reserved);
    std::vector<std::byte> expected;
    for (int32_t t = 0; t < accepted; ++t) {
      const auto row =
          run_rows(plain, RowRole::kDecode, std::span(tokens).subspan(static_cast<size_t>(t), 1));
      expected.insert(expected.end(), row.begin(), row.end());
    }
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin()))
        << "round " << round << ": a verified row has other bits than a plain one";
    expect_same_state(state, plain);
  }
}

// The same rows in one call with other sequences.
TEST_P(RollbackTest, SequencesOfABatchAcceptTheirOwn) {
  Numbers random(5);
  StepObserver nobody;
  std::vector<SequenceState> states;
  std::vector<SequenceState> plain;
  for (int s = 0; s < 3; ++s) {
    states.push_back(model_.new_state());
    plain.push_back(model_.new_state());
    const std::vector<int32_t> prompt = random_rows(random, 3 + 2 * s);
    run_rows(states.back(), RowRole::kPrefill, prompt);
    run_rows(plain.back(), RowRole::kPrefill, prompt);
  }
  for (int round = 0; round < 10; ++round) {
    Batch batch;
    std::vector<std::vector<int32_t>> tokens;
    for (SequenceState& state : states) {
      tokens.push_back(random_rows(random, random.integer(1, kMostRows)));
      batch.add_tentative(state, tokens.back(), {state.length()});
    }
    ASSERT_TRUE(batch.reserve().is_ok());
    run(batch);
    for (size_t s = 0; s < states.size(); ++s) {
      const auto accepted =
          static_cast<int32_t>(random.integer(round == 0 ? 1 : 0, std::ssize(tokens[s])));
      decoder_.commit(model_.step(), states[s], accepted, nobody);
      for (int32_t t = 0; t < accepted; ++t) {
        run_rows(plain[s], RowRole::kDecode,
                 std::span(tokens[s]).subspan(static_cast<size_t>(t), 1));
      }
      expect_same_state(states[s], plain[s]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, RollbackTest,
    testing::Values(RollbackCase{"GatedReference", false, false, DType::kF64,
                                 DeltaForm::kRecurrent},
                    RollbackCase{"KimiReference", true, false, DType::kF64, DeltaForm::kRecurrent},
                    RollbackCase{"GatedCpu", false, true, DType::kBf16, DeltaForm::kRecurrent},
                    RollbackCase{"KimiCpu", true, true, DType::kF32, DeltaForm::kRecurrent},
                    RollbackCase{"GatedCpuChunked", false, true, DType::kBf16, DeltaForm::kChunked},
                    RollbackCase{"KimiCpuChunked", true, true, DType::kBf16, DeltaForm::kChunked}),
    [](const auto& test) { return test.param.name; });

class ReadyEvents final : public StepObserver {
 public:
  void state_ready(int, StateKind kind, SequenceState&, TokenRange tokens) override {
    if (kind == StateKind::kReplayRing || kind == StateKind::kWindowRing) ADD_FAILURE();
    ++events;
    end = tokens.end.value;
  }
  int events = 0;
  int64_t end = 0;
};

// Whoever hands state on must not see what may be rolled back.
TEST(TentativeRows, AreReadyOnlyWhenCommitted) {
  ModelUnderTest model(mild_model(), "",
                       {.kv = DType::kF64, .recurrent = DType::kF64, .tentative_rows = 4});
  const Decoder decoder = model.decoder();
  SequenceState state = model.new_state();
  Batch batch;
  const std::vector<int32_t> tokens = {1, 2, 3, 4};
  batch.add_tentative(state, tokens, {0});
  ASSERT_TRUE(batch.reserve().is_ok());
  Rows hidden(4, TestModel::kHidden);
  decoder.embed(model.step(), batch.tokens, hidden.view());
  ReadyEvents events;
  ASSERT_TRUE(decoder.run_layers(model.step(), batch, hidden.view(), events).is_ok());
  EXPECT_EQ(events.events, 0);
  decoder.commit(model.step(), state, 3, events);
  EXPECT_GT(events.events, 0);
  EXPECT_EQ(events.end, 3);
  EXPECT_EQ(state.length(), 3);
}

}  // namespace
}  // namespace motley
