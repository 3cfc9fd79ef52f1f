#include "experts/record_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "experts/expert_layout.h"
#include "experts/expert_test_util.h"

namespace motley {
namespace {

TEST(RecordShape, PartsAreWholeBlocksAndPlanesAligned) {
  const FakeFile fake = stacked_file(2, 333);
  const RecordShape shape = RecordShape::of(fake.layers[1][0]);
  EXPECT_EQ(shape.gate_up_bytes % kRecordBlock, 0);
  EXPECT_EQ(shape.down_bytes % kRecordBlock, 0);
  int64_t end = 0;
  for (int plane = 0; plane < kExpertPlanes; ++plane) {
    const int64_t at = shape.at[static_cast<size_t>(plane)];
    EXPECT_EQ(at % 64, 0) << plane;
    EXPECT_GE(at, end) << plane;
    EXPECT_EQ(plane < kFirstDownPlane, at < shape.gate_up_bytes) << plane;
    end = at + expert_plane_bytes(fake.layers[1][0], plane);
  }
  EXPECT_LE(end, shape.bytes());
  EXPECT_LT(shape.bytes() - end, kRecordBlock);
}

TEST(RecordShape, PlanesThatAFormatLacksTakeNoPlace) {
  FakeFile fake = stacked_file(1, 0);
  ExpertWeights& expert = fake.layers[1][0];
  const int64_t with = RecordShape::of(expert).bytes();
  for (WeightMatrix* matrix : {&expert.gate, &expert.up, &expert.down}) {
    matrix->scales = matrix->biases = {};
  }
  const RecordShape shape = RecordShape::of(expert);
  EXPECT_EQ(shape.at[1], -1);
  EXPECT_EQ(shape.at[8], -1);
  EXPECT_LT(shape.bytes(), with);
}

TEST(RecordShape, EqualExpertsAreEqualRecords) {
  const FakeFile fake = stacked_file(3, 777);
  const ExpertWeights& expert = fake.layers[1][2];
  const RecordShape shape = RecordShape::of(expert);
  std::vector<std::byte> first(static_cast<size_t>(shape.bytes()), std::byte{1});
  std::vector<std::byte> second(static_cast<size_t>(shape.bytes()), std::byte{2});
  write_record(expert, shape, first);
  write_record(expert, shape, second);
  EXPECT_EQ(first, second) << "gaps are zeroed";
}

// The layout of packed records finds the planes where write_record() puts them.
TEST(RecordShape, APackedLayoutReadsWhatWasWritten) {
  const FakeFile fake = stacked_file(5, 1);
  const RecordShape shape = RecordShape::of(fake.layers[1][0]);
  std::vector<std::byte> file(static_cast<size_t>(5 * shape.bytes()));
  for (size_t e = 0; e < 5; ++e) {
    write_record(fake.layers[1][e], shape,
                 std::span(file).subspan(e * static_cast<size_t>(shape.bytes()),
                                         static_cast<size_t>(shape.bytes())));
  }
  const auto place = [&](int layer, int expert) {
    return RecordPlace{
        .file = layer - 1, .offset = expert * shape.bytes(), .copies = expert == 3 ? 2U : 3U};
  };
  const ExpertLayout layout = ExpertLayout::create_packed(fake.layers, place, 1);
  EXPECT_EQ(layout.slot_bytes(), shape.bytes());
  EXPECT_EQ(layout.files_per_copy(), 1);
  EXPECT_EQ(layout.copies(1, 2), 3U);
  EXPECT_EQ(layout.copies(1, 3), 2U);
  for (int e = 0; e < 5; ++e) {
    const ExpertReads reads = layout.reads(1, e);
    ASSERT_EQ(reads.gate_up.size(), 1U);
    ASSERT_EQ(reads.down.size(), 1U);
    EXPECT_EQ(reads.gate_up[0].offset + reads.gate_up[0].bytes, reads.down[0].offset);
    std::vector<std::byte> slot(static_cast<size_t>(layout.slot_bytes()));
    for (const ExpertRead& read : {reads.gate_up[0], reads.down[0]}) {
      std::memcpy(slot.data() + read.at, file.data() + read.offset,
                  static_cast<size_t>(read.bytes));
    }
    const ExpertWeights got = layout.weights_in(1, e, slot.data());
    const ExpertWeights& expected = fake.layers[1][static_cast<size_t>(e)];
    const auto planes = expert_planes(got);
    for (int plane = 0; plane < kExpertPlanes; ++plane) {
      const auto bytes = static_cast<size_t>(expert_plane_bytes(expected, plane));
      EXPECT_EQ(std::memcmp(planes[static_cast<size_t>(plane)]->data,
                            expert_planes(expected)[static_cast<size_t>(plane)]->data, bytes),
                0)
          << "expert " << e << " plane " << plane;
    }
  }
}

}  // namespace
}  // namespace motley
