#include "experts/expert_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "experts/expert_test_util.h"

namespace motley {
namespace {

constexpr int64_t kBlock = ExpertLayout::kBlockBytes;

// Does the reads into a slot, as a drive would.
std::vector<std::byte> fill_slot(const ExpertLayout& layout, const FakeFile& fake, int expert) {
  std::vector<std::byte> slot(static_cast<size_t>(layout.slot_bytes()));
  const ExpertReads reads = layout.reads(1, expert);
  for (const auto& list : {reads.gate_up, reads.down}) {
    for (const ExpertRead& read : list) {
      EXPECT_EQ(read.offset % kBlock, 0);
      EXPECT_EQ(read.bytes % kBlock, 0);
      EXPECT_EQ(read.at % kBlock, 0);
      EXPECT_LE(read.at + read.bytes, layout.slot_bytes());
      const int64_t there = std::min<int64_t>(read.bytes, std::ssize(fake.bytes) - read.offset);
      std::memcpy(slot.data() + read.at, fake.bytes.data() + read.offset,
                  static_cast<size_t>(there));
    }
  }
  return slot;
}

void expect_same(const WeightMatrix& got, const WeightMatrix& expected) {
  EXPECT_EQ(got.rows, expected.rows);
  EXPECT_EQ(got.cols, expected.cols);
  for (auto plane : {&WeightMatrix::codes, &WeightMatrix::scales, &WeightMatrix::biases}) {
    const auto bytes = static_cast<size_t>(expected.rows * (expected.*plane).row_bytes);
    EXPECT_EQ((got.*plane).row_bytes, (expected.*plane).row_bytes);
    EXPECT_EQ(std::memcmp((got.*plane).data, (expected.*plane).data, bytes), 0);
  }
}

TEST(ExpertLayout, FilledSlotsHoldTheExperts) {
  const FakeFile fake = stacked_file(7, 4093);
  const std::span<const std::byte> file(fake.bytes);
  const ExpertLayout layout = ExpertLayout::create(fake.layers, std::span(&file, 1));
  EXPECT_EQ(layout.layers(), 2);
  EXPECT_EQ(layout.expert_layers(), 1);
  EXPECT_EQ(layout.expert_count(), 7);
  int64_t payload = 0;
  for (int expert = 0; expert < 7; ++expert) {
    const ExpertWeights& expected = fake.layers[1][static_cast<size_t>(expert)];
    const std::vector<std::byte> slot = fill_slot(layout, fake, expert);
    const ExpertWeights got = layout.weights_in(1, expert, slot.data());
    expect_same(got.gate, expected.gate);
    expect_same(got.up, expected.up);
    expect_same(got.down, expected.down);
    payload += expected.gate.bytes() + expected.up.bytes() + expected.down.bytes();
  }
  EXPECT_EQ(layout.payload_bytes(), payload);
}

TEST(ExpertLayout, ReadsWhatLiesTogetherAtOnce) {
  // One expert as one record: gate, up and down with their planes in a row.
  FakeFile fake = stacked_file(1, 10000);
  const std::span<const std::byte> file(fake.bytes);
  const ExpertLayout layout = ExpertLayout::create(fake.layers, std::span(&file, 1));
  EXPECT_EQ(layout.reads(1, 0).gate_up.size(), 1U);
  EXPECT_EQ(layout.reads(1, 0).down.size(), 1U);

  // With 20 experts the codes are far apart; scales and biases lie within 16 KiB of what follows:
  // gate codes | gate scales, gate biases, up codes | up scales, up biases.
  fake = stacked_file(20, 10000);
  const std::span<const std::byte> far(fake.bytes);
  const ExpertLayout apart = ExpertLayout::create(fake.layers, std::span(&far, 1));
  EXPECT_EQ(apart.reads(1, 0).gate_up.size(), 3U);
}

TEST(ExpertLayout, UnquantisedExpertsHaveOnePlaneEach) {
  FakeFile fake = stacked_file(3, 0);
  for (ExpertWeights& expert : fake.layers[1]) {
    for (WeightMatrix* matrix : {&expert.gate, &expert.up, &expert.down}) {
      matrix->format = WeightFormat::kBf16;
      matrix->codes.row_bytes = 8;
      matrix->scales = matrix->biases = {};
    }
  }
  const std::span<const std::byte> file(fake.bytes);
  const ExpertLayout layout = ExpertLayout::create(fake.layers, std::span(&file, 1));
  const ExpertWeights got = layout.weights_in(1, 2, fake.bytes.data());
  EXPECT_NE(got.down.codes.data, nullptr);
  EXPECT_EQ(got.down.scales.data, nullptr);
  EXPECT_EQ(layout.payload_bytes(), 3 * (64 + 64 + 256) * 8);
}

TEST(ExpertLayout, FindsTheFileOfEveryPlane) {
  FakeFile first = stacked_file(2, 100);
  FakeFile second = stacked_file(2, 5000);
  std::vector<std::vector<ExpertWeights>> layers = {first.layers[1], second.layers[1]};
  layers[0][0].down = second.layers[1][0].down;  // an expert in two files
  const std::array files = {std::span<const std::byte>(first.bytes),
                            std::span<const std::byte>(second.bytes)};
  const ExpertLayout layout = ExpertLayout::create(layers, files);
  EXPECT_EQ(layout.reads(0, 0).gate_up[0].file, 0);
  EXPECT_EQ(layout.reads(0, 0).down[0].file, 1);
  EXPECT_EQ(layout.reads(0, 1).down[0].file, 0);
  EXPECT_EQ(layout.reads(1, 1).gate_up[0].file, 1);
}

}  // namespace
}  // namespace motley
