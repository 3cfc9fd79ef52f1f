#include "experts/streamed_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "base/owned_context.h"
#include "experts/expert_test_util.h"
#include "io/stream/read_backend_test_util.h"
#include "support/test_files.h"

namespace motley {
namespace {

constexpr int kExperts = 24;

bool same_plane(const WeightPlane& a, const WeightPlane& b, int64_t rows) {
  return a.row_bytes == b.row_bytes &&
         std::memcmp(a.data, b.data, static_cast<size_t>(rows * a.row_bytes)) == 0;
}

bool same_matrix(const WeightMatrix& a, const WeightMatrix& b) {
  return a.rows == b.rows && same_plane(a.codes, b.codes, a.rows) &&
         same_plane(a.scales, b.scales, a.rows) && same_plane(a.biases, b.biases, a.rows);
}

class StreamedStore : public testing::Test {
 protected:
  StreamedStore() : fake_(stacked_file(kExperts, 12345)) { write(); }

  void write() {
    folder_.write("experts.bin",
                  {reinterpret_cast<const char*>(fake_.bytes.data()), fake_.bytes.size()});
  }
  std::string path() const { return folder_ / "experts.bin"; }

  std::unique_ptr<StreamedExpertStore> open(int64_t slots, Unreliability unreliability = {},
                                            int wave_slots = 0) {
    std::vector<DirectFile> files;
    files.push_back(open_for_test(context_.faults(), path()));
    auto opened = open_read_backend(descriptors_of(files), {.kind = ReadBackendKind::kPread});
    EXPECT_TRUE(opened.is_ok());
    opened->backend =
        std::make_unique<UnreliableBackend>(std::move(opened->backend), unreliability);
    auto reads =
        std::make_unique<ReadScheduler>(context_.get().clock, context_.faults(), std::move(files),
                                        std::move(*opened), ReadSchedulerOptions{.depth = 8});
    const std::span<const std::byte> bytes(fake_.bytes);
    auto store = StreamedExpertStore::create(
        context_.get(), ExpertLayout::create(fake_.layers, std::span(&bytes, 1)), std::move(reads),
        {.slots = slots, .floor = 4, .wave_slots = wave_slots});
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    return store.is_ok() ? std::move(store).value() : nullptr;
  }

  // Wants the experts and checks that exactly they came, each with its own bytes. The largest wave.
  size_t expect_all(StreamedExpertStore& store, const std::vector<int32_t>& wanted, int layer = 1) {
    std::vector<int32_t> seen;
    size_t largest = 0;
    const Status status = store.for_each_wave(
        layer, wanted,
        [&](std::span<const ResolvedExpert> wave) {
          largest = std::max(largest, wave.size());
          for (const ResolvedExpert& resolved : wave) {
            seen.push_back(resolved.expert);
            const ExpertWeights& expected = fake_.layers[1][static_cast<size_t>(resolved.expert)];
            EXPECT_TRUE(same_matrix(resolved.weights->gate, expected.gate)) << resolved.expert;
            EXPECT_TRUE(same_matrix(resolved.weights->up, expected.up)) << resolved.expert;
            EXPECT_TRUE(same_matrix(resolved.weights->down, expected.down)) << resolved.expert;
          }
        },
        [] {});
    EXPECT_TRUE(status.is_ok()) << status.message();
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, wanted);
    return largest;
  }

  std::vector<int32_t> choose(size_t count) {
    std::vector<int32_t> all(kExperts);
    for (int32_t i = 0; i < kExperts; ++i) all[static_cast<size_t>(i)] = i;
    std::shuffle(all.begin(), all.end(), rng_);
    all.resize(count);
    std::sort(all.begin(), all.end());
    return all;
  }

  OwnedContext context_{{.threads = 1, .pin = false}};
  TemporaryDirectory folder_;
  FakeFile fake_;
  std::mt19937_64 rng_{7};
};

TEST_F(StreamedStore, BringsEveryExpertWhateverTheCacheHolds) {
  for (const int64_t slots : {4, 5, 11, kExperts}) {
    const auto store = open(slots);
    ASSERT_NE(store, nullptr);
    for (int step = 0; step < 60; ++step) {
      expect_all(*store, choose(step % 4 == 3 ? static_cast<size_t>(kExperts) : 4));
    }
    const StreamStats stats = store->stats();
    EXPECT_EQ(stats.uses, 45 * 4 + 15 * kExperts);
    EXPECT_GT(stats.read_bytes, 0);
    if (slots == kExperts) {
      EXPECT_EQ(stats.uses - stats.hits, kExperts) << "each is read once";
    }
  }
}

TEST_F(StreamedStore, LateShortAndFailingReadsChangeNothing) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto store = open(6, {.seed = seed, .errors = 0.2, .short_reads = 0.2});
    ASSERT_NE(store, nullptr);
    for (int step = 0; step < 40; ++step) expect_all(*store, choose(4));
    EXPECT_GT(store->stats().retries, 0);
  }
}

TEST_F(StreamedStore, AnExpertThatCannotBeReadFailsTheStepAndNoMore) {
  const auto store = open(8);
  ASSERT_NE(store, nullptr);
  expect_all(*store, {1, 2, 3, 4});
  context_.faults().arm("io.stream.read", 1, io_error("drive", EIO));
  context_.faults().arm("io.stream.retry", 1, io_error("drive", EIO));
  std::vector<int32_t> seen;
  const Status status = store->for_each_wave(
      1, std::vector<int32_t>{3, 7},
      [&](std::span<const ResolvedExpert> wave) {
        for (const ResolvedExpert& resolved : wave) seen.push_back(resolved.expert);
      },
      [] {});
  ASSERT_FALSE(status.is_ok());
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("expert 7 of layer 1"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("experts.bin"), std::string::npos) << status.message();
  EXPECT_EQ(seen, std::vector<int32_t>{3});
  expect_all(*store, {3, 7});  // read anew
}

TEST_F(StreamedStore, ASweepReadsAheadWhatTheNextLayerWants) {
  const auto store = open(kExperts);
  ASSERT_NE(store, nullptr);
  store->begin_sweep_layer(0);  // without experts of its own
  store->begin_sweep_layer(1);
  expect_all(*store, choose(kExperts));
  store->end_sweep();
  const StreamStats stats = store->stats();
  EXPECT_EQ(stats.ahead_used, kExperts) << "all were on their way";
  expect_all(*store, choose(4));
  EXPECT_EQ(store->stats().read_bytes, stats.read_bytes);
}

// On a drive so slow that a layer's wanted experts are all that it brings, the others must not pile
// up behind the sweep, each holding its slot: once that left a step without any.
TEST_F(StreamedStore, ASweepDropsWhatALayerDidNotWant) {
  constexpr int kLayers = 12;
  constexpr int kWanted = 4;
  constexpr int kReadsOfAnExpert = 9;
  while (std::ssize(fake_.layers) <= kLayers) fake_.layers.push_back(fake_.layers[1]);
  const auto store = open(4 * kLayers + 2 * kExperts, {.delay_us = 1000});
  for (int layer = 0; layer <= kLayers; ++layer) {
    store->begin_sweep_layer(layer);
    if (layer > 0) expect_all(*store, choose(kWanted), layer);
  }
  store->end_sweep();
  // What was wanted, the last layer, and per layer what had started: less than the slots could
  // hold.
  const int64_t wanted = kWanted * kLayers * kReadsOfAnExpert;
  EXPECT_GE(store->stats().reads, wanted);
  EXPECT_LT(store->stats().reads, wanted + 2 * kExperts * kReadsOfAnExpert + 8 * kLayers);
}

TEST_F(StreamedStore, AFailedReadAheadIsReadAgainWhenItIsWanted) {
  const auto store = open(kExperts);
  ASSERT_NE(store, nullptr);
  context_.faults().arm("io.stream.read", 3, io_error("drive", EIO));
  context_.faults().arm("io.stream.retry", 1, io_error("drive", EIO));
  store->begin_sweep_layer(0);
  store->end_sweep();  // waits for what was begun
  EXPECT_EQ(store->stats().retries, 1);
  expect_all(*store, choose(kExperts));
  const StreamStats stats = store->stats();
  EXPECT_EQ(stats.ahead_used, kExperts - 1);
}

TEST_F(StreamedStore, ASweepThroughACacheSmallerThanALayerReadsNothingAhead) {
  const auto store = open(6);
  ASSERT_NE(store, nullptr);
  for (int round = 0; round < 3; ++round) {
    store->begin_sweep_layer(0);
    store->begin_sweep_layer(1);
    expect_all(*store, choose(kExperts));
    store->end_sweep();
  }
}

TEST_F(StreamedStore, AGuessThatComesTrueIsNotReadTwice) {
  const auto store = open(kExperts);
  ASSERT_NE(store, nullptr);
  for (int step = 0; step < 3; ++step) {
    const StreamStats before = store->stats();
    const std::vector<int32_t> wanted = {4 * step, 4 * step + 1, 4 * step + 2, 4 * step + 3};
    store->expect(1, wanted, 4);
    expect_all(*store, wanted);
    const StreamStats step_stats = store->stats() - before;
    EXPECT_GE(step_stats.ahead_used, 1) << "at least one guess is tried";
    EXPECT_EQ(step_stats.hits, 0) << "what was read ahead is no hit";
    EXPECT_EQ(step_stats.ahead_wasted, 0);
  }
}

TEST_F(StreamedStore, WrongGuessesAreDroppedAndChangeNothing) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    for (const int64_t slots : {4, 7, kExperts}) {
      const auto store = open(slots, {.seed = seed, .errors = 0.1, .short_reads = 0.1});
      ASSERT_NE(store, nullptr);
      for (int step = 0; step < 60; ++step) {
        store->expect(1, choose(4), 4);
        expect_all(*store, choose(step % 8 == 7 ? static_cast<size_t>(kExperts) : 4));
        if (step % 10 == 9) {
          store->begin_sweep_layer(0);
          store->begin_sweep_layer(1);
          expect_all(*store, choose(kExperts));
          store->end_sweep();
        }
      }
    }
  }
}

TEST_F(StreamedStore, ScalesThatAreNotFiniteAreRefused) {
  const WeightPlane& scales = fake_.layers[1][5].down.scales;
  const int64_t at = scales.data - fake_.bytes.data();
  fake_.bytes[static_cast<size_t>(at + 7)] = std::byte{0x7F};
  fake_.bytes[static_cast<size_t>(at + 6)] = std::byte{0xC0};
  write();
  const auto store = open(8);
  ASSERT_NE(store, nullptr);
  const Status status = store->for_each_wave(
      1, std::vector<int32_t>{5}, [](std::span<const ResolvedExpert>) { FAIL(); }, [] {});
  EXPECT_EQ(status.message(), "expert 5 of layer 1: its scales hold NaN or infinity");
  expect_all(*store, {1, 2, 3, 4});
}

TEST_F(StreamedStore, WavesCanBeBounded) {
  const auto store = open(kExperts, {}, 3);
  ASSERT_NE(store, nullptr);
  EXPECT_LE(expect_all(*store, choose(kExperts)), 3U);
}

TEST_F(StreamedStore, FewerSlotsThanTheFloorAreRefused) {
  std::vector<DirectFile> files;
  files.push_back(open_for_test(context_.faults(), path()));
  auto reads = ReadScheduler::open(context_.get().clock, context_.faults(), std::move(files), {});
  ASSERT_TRUE(reads.is_ok());
  const std::span<const std::byte> bytes(fake_.bytes);
  const auto store = StreamedExpertStore::create(
      context_.get(), ExpertLayout::create(fake_.layers, std::span(&bytes, 1)), std::move(*reads),
      {.slots = 3, .floor = 4});
  EXPECT_FALSE(store.is_ok());
}

}  // namespace
}  // namespace motley
