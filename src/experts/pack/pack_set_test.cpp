#include "experts/pack/pack_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "experts/pack/pack_check.h"
#include "experts/pack/pack_probe.h"
#include "experts/pack/pack_space.h"
#include "experts/pack/pack_test_util.h"
#include "experts/streamed_store.h"

namespace motley {
namespace {

using testing::HasSubstr;

class PackSetTest : public testing::Test {
 protected:
  // Flips a byte of a record's part.
  void damage(const std::string& directory, int layer, int expert, bool down) {
    const std::string name = directory + "/" + layer_file_name(layer);
    std::vector<std::byte> bytes = out_.read(name);
    const RecordShape shape = RecordShape::of(model_.pack().layers[static_cast<size_t>(layer)][0]);
    const int64_t at = expert * shape.bytes() + (down ? shape.gate_up_bytes : 0) + 100;
    bytes[static_cast<size_t>(at)] ^= std::byte{8};
    out_.write(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  std::string open_error(const std::vector<std::string>& directories) {
    return PackSet::open(model_.context(), directories, model_.pack()).status().message();
  }

  std::unique_ptr<StreamedExpertStore> store(const std::vector<std::string>& directories,
                                             bool check) {
    auto set = PackSet::open(model_.context(), directories, model_.pack());
    EXPECT_TRUE(set.is_ok()) << set.status().message();
    auto files = set->open_files();
    EXPECT_TRUE(files.is_ok()) << files.status().message();
    ExpertLayout layout = set->layout(model_.pack().layers);
    auto packed = std::make_shared<const PackSet>(std::move(*set));
    auto store =
        StreamedExpertStore::create(model_.context(), std::move(layout), std::move(*files),
                                    {.slots = 12, .floor = 2, .packed = packed, .check = check});
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    return std::move(*store);
  }

  // Wants all experts of all layers, several times; the first failure.
  Status stream_all(StreamedExpertStore& store) {
    Status failure;
    const std::vector<int32_t> all = {0, 1, 2, 3};
    for (int round = 0; round < 3; ++round) {
      for (size_t layer = 0; layer < model_.pack().layers.size(); ++layer) {
        const Status status = store.for_each_wave(
            static_cast<int>(layer), all,
            [&](std::span<const ResolvedExpert> wave) {
              for (const ResolvedExpert& one : wave) {
                expect_same(*one.weights,
                            model_.pack().layers[layer][static_cast<size_t>(one.expert)]);
              }
            },
            [] {});
        if (failure.is_ok()) failure = status;
      }
    }
    return failure;
  }

  static void expect_same(const ExpertWeights& got, const ExpertWeights& expected) {
    for (int plane = 0; plane < kExpertPlanes; ++plane) {
      const auto bytes = static_cast<size_t>(expert_plane_bytes(expected, plane));
      if (bytes == 0) continue;
      EXPECT_EQ(std::memcmp(expert_planes(got)[static_cast<size_t>(plane)]->data,
                            expert_planes(expected)[static_cast<size_t>(plane)]->data, bytes),
                0);
    }
  }

  PackTestModel model_{TestModelOptions{.mlx = true, .quantized = MlxAffineFormat{4, 32}}};
  TemporaryDirectory out_;
};

TEST_F(PackSetTest, StreamsFromOneFromMirrorsAndFromParts) {
  ASSERT_TRUE(model_.write({out_ / "one"}).is_ok());
  ASSERT_TRUE(model_.write({out_ / "m1", out_ / "m2"}, true).is_ok());
  ASSERT_TRUE(model_.write({out_ / "s1", out_ / "s2", out_ / "s3"}).is_ok());
  for (const std::vector<std::string>& directories : {std::vector<std::string>{out_ / "one"},
                                                      {out_ / "m1", out_ / "m2"},
                                                      {out_ / "s3", out_ / "s1", out_ / "s2"}}) {
    for (const bool check : {false, true}) {
      const auto streamed = store(directories, check);
      EXPECT_EQ(stream_all(*streamed).message(), "");
      const StreamStats stats = streamed->stats();
      EXPECT_EQ(stats.guarded.checked_bytes, check ? stats.read_bytes : 0);
      EXPECT_EQ(stats.guarded.mismatches, 0);
    }
  }
}

TEST_F(PackSetTest, WithChecksDamageFailsTheRequestAndNoMore) {
  ASSERT_TRUE(model_.write({out_ / "p"}).is_ok());
  damage("p", 2, 1, /*down=*/true);
  const auto checked = store({out_ / "p"}, true);
  const std::string message = stream_all(*checked).message();
  EXPECT_THAT(message, HasSubstr("expert 1 of layer 2: "));
  EXPECT_THAT(message, HasSubstr("/p/layer-00002.experts: "));
  EXPECT_THAT(message, HasSubstr("have another checksum than when they were packed"));
  const std::vector<int32_t> others = {0, 2, 3};
  EXPECT_TRUE(
      checked->for_each_wave(2, others, [](std::span<const ResolvedExpert>) {}, [] {}).is_ok());
}

TEST_F(PackSetTest, WithAMirrorDamageIsHealed) {
  ASSERT_TRUE(model_.write({out_ / "a", out_ / "b"}, true).is_ok());
  damage("a", 0, 3, /*down=*/false);
  damage("b", 0, 2, /*down=*/true);
  const auto checked = store({out_ / "a", out_ / "b"}, true);
  EXPECT_EQ(stream_all(*checked).message(), "");
  const GuardStats stats = checked->stats().guarded;
  EXPECT_GT(stats.mismatches, 0);
  EXPECT_EQ(stats.rescued, stats.mismatches);

  // Verifying takes the damaged copy out of use: nothing is left to find.
  for (const char* name : {"a", "b"}) {
    const auto check = check_pack(model_.context(), out_ / name, {});
    ASSERT_TRUE(check.is_ok()) << check.status().message();
    EXPECT_FALSE(check->marked) << "a run holds it";
  }
}

TEST_F(PackSetTest, VerifyMarksAndPackRepairs) {
  ASSERT_TRUE(model_.write({out_ / "p"}).is_ok());
  damage("p", 1, 2, /*down=*/false);
  damage("p", 4, 0, /*down=*/true);
  const auto check = check_pack(model_.context(), out_ / "p", {});
  ASSERT_TRUE(check.is_ok()) << check.status().message();
  ASSERT_EQ(check->damaged.size(), 2U);
  EXPECT_TRUE(check->marked);
  const DamagedRecord& first = check->damaged[0];
  EXPECT_EQ(std::tuple(first.layer, first.expert, first.gate_up, first.down),
            std::tuple(1, 2, true, false));
  EXPECT_TRUE(first.file.ends_with("/p/layer-00001.experts"));
  const RecordShape shape = RecordShape::of(model_.pack().layers[1][0]);
  EXPECT_EQ(first.offset, 2 * shape.bytes());
  EXPECT_EQ(first.bytes, shape.gate_up_bytes);
  EXPECT_EQ(check->damaged[1].offset, shape.gate_up_bytes);

  EXPECT_THAT(open_error({out_ / "p"}), HasSubstr("/p: 2 experts are not written or damaged"));
  const auto again = check_pack(model_.context(), out_ / "p", {});
  EXPECT_EQ(again->missing, 2);
  EXPECT_TRUE(again->damaged.empty());
  const auto repaired = model_.write({out_ / "p"});
  ASSERT_TRUE(repaired.is_ok());
  EXPECT_EQ(repaired->written, 2);
  EXPECT_EQ(stream_all(*store({out_ / "p"}, true)).message(), "");
}

TEST_F(PackSetTest, AMarkedRecordIsReadFromTheMirror) {
  ASSERT_TRUE(model_.write({out_ / "a", out_ / "b"}, true).is_ok());
  damage("a", 3, 3, /*down=*/false);
  ASSERT_TRUE(check_pack(model_.context(), out_ / "a", {}).is_ok());
  EXPECT_NE(open_error({out_ / "a"}), "");
  const auto streamed = store({out_ / "a", out_ / "b"}, false);
  EXPECT_EQ(stream_all(*streamed).message(), "");
}

TEST_F(PackSetTest, RefusesWhatIsNotWhole) {
  ASSERT_TRUE(model_.write({out_ / "s1", out_ / "s2"}).is_ok());
  ASSERT_TRUE(model_.write({out_ / "one"}).is_ok());
  EXPECT_THAT(open_error({out_ / "s1"}), HasSubstr("part 2 is not given"));
  EXPECT_THAT(open_error({out_ / "s1", out_ / "one"}), HasSubstr("use packs of one split"));
  EXPECT_THAT(open_error({out_ / "none"}), HasSubstr("/none: no such directory"));
  EXPECT_THAT(open_error({model_.path()}), HasSubstr("is no pack, motley-pack.json is missing"));
  std::filesystem::remove(out_ / "one/checksums.bin");
  EXPECT_THAT(open_error({out_ / "one"}), HasSubstr("20 experts are not written or damaged"));
  const auto set = PackSet::open(model_.context(), {{out_ / "s1", out_ / "s2"}}, model_.pack());
  ASSERT_TRUE(set.is_ok());
  std::filesystem::resize_file(out_ / "s2/layer-00000.experts", 5000);
  EXPECT_THAT(set->open_files().status().message(), HasSubstr("\"motley pack\" repairs it"));
  std::filesystem::remove(out_ / "s2/layer-00000.experts");
  EXPECT_THAT(set->open_files().status().message(), HasSubstr("layer-00000.experts: has 0 of"));
  const std::vector<std::string> many(33, out_ / "s1");
  EXPECT_THAT(open_error(many), HasSubstr("at most 32 packs"));
}

TEST_F(PackSetTest, ADiskThatIsTooSmallIsRefusedWithTheArithmetic) {
  PackManifest manifest = manifest_of(model_.pack(), 1, 0).value();
  for (PackLayer& layer : manifest.layers) {
    layer.experts = 60000;
    layer.gate_up_bytes = int64_t{1} << 32;
  }
  const std::vector<std::string> directories = {out_ / "new/deep"};
  const Status status = check_pack_space(directories, {{manifest}});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("/new/deep: the disk is too small: "));
  EXPECT_THAT(status.message(), HasSubstr(" GB more are needed and "));
  EXPECT_THAT(status.message(), HasSubstr(" are missing"));
  EXPECT_FALSE(std::filesystem::exists(out_ / "new"));
  EXPECT_THAT(disk_full(out_.path(), manifest).message(), HasSubstr("make room and run the same"));
}

TEST_F(PackSetTest, TheProbeComparesRangesWithRecords) {
  const auto probe = probe_packing(model_.context(), model_.pack(),
                                   {.at_once = 2, .rounds = 1, .seconds_per_turn = 0.02});
  ASSERT_TRUE(probe.is_ok()) << probe.status().message();
  EXPECT_GE(probe->ranges_per_expert, 2);
  EXPECT_GT(probe->bytes_per_expert, 0);
  EXPECT_GT(probe->plain_bytes_per_s, 0);
  EXPECT_GT(probe->packed_bytes_per_s, 0);
  model_.faults().arm("io.stream.read", 1, io_error("drive", EIO));
  model_.faults().arm("io.stream.retry", 1, io_error("drive", EIO));
  const auto failed = probe_packing(model_.context(), model_.pack(),
                                    {.at_once = 2, .rounds = 1, .seconds_per_turn = 0.02});
  EXPECT_THAT(failed.status().message(), HasSubstr("cannot probe the drive"));
}

}  // namespace
}  // namespace motley
