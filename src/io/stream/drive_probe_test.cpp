#include "io/stream/drive_probe.h"

#include <gmock/gmock.h>

#include "io/stream/read_backend_test_util.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

DriveProbe made_up(std::string drive = "8:1 0123") {
  return {.drive = std::move(drive),
          .backend = "pread",
          .record_class_bytes = 1 << 21,
          .parts = 9,
          .is_direct = true,
          .reason = "io_uring: \"forbidden\"",
          .random = {{1, 5e8}, {2, 9e8}, {4, 1.5e9}, {8, 1.96e9}, {16, 2e9}, {32, 1.9e9}},
          .sequential_bytes_per_second = 2.5e9,
          .taken_unix_s = 1'700'000'000};
}

TEST(DriveProbe, TheBestDepthIsTheSmallestThatIsGoodEnough) {
  EXPECT_EQ(made_up().best_depth(), 8);
  EXPECT_EQ(made_up().best_bytes_per_second(), 2e9);
  DriveProbe flat = made_up();
  for (DriveRate& rate : flat.random) rate.bytes_per_second = 1e9;
  EXPECT_EQ(flat.best_depth(), 1);
}

TEST(DriveProbe, RecordsOfSimilarSizeShareAClass) {
  EXPECT_EQ(record_class(1'769'472), 1 << 21);
  EXPECT_EQ(record_class(1 << 21), 1 << 21);
  EXPECT_EQ(record_class((1 << 21) + 1), 1 << 22);
}

TEST(DriveCache, TextAndBack) {
  const std::vector<DriveProbe> probes = {made_up(), made_up("8:2 4567")};
  const auto parsed = parse_drive_probes(format_drive_probes(probes), "f");
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
  EXPECT_EQ(*parsed, probes);
  EXPECT_TRUE(parse_drive_probes(format_drive_probes({}), "f")->empty());
}

TEST(DriveCache, RefusesWhatItDidNotWrite) {
  const std::string good = format_drive_probes(std::vector<DriveProbe>{made_up()});
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    text.replace(at, from.size(), to);
    return parse_drive_probes(text, "f").status().message();
  };
  EXPECT_THAT(with("drives 1", "drives 9"), HasSubstr("f: format"));
  EXPECT_THAT(with("\"depth\": 2", "\"depth\": 1"), HasSubstr("random[1].depth"));
  EXPECT_THAT(with("\"depth\": 2", "\"depth\": -2"), HasSubstr("depth"));
  EXPECT_THAT(with(": 500000000", ": -1"), HasSubstr("bytes_per_second"));
  EXPECT_THAT(with(": 500000000", ": 1e300"), HasSubstr("bytes_per_second"));
  EXPECT_THAT(with("1700000000", "\"now\""), HasSubstr("taken_unix_s"));
  EXPECT_THAT(with("8:1 0123", std::string(2000, 'x')), HasSubstr("drive"));
  EXPECT_THAT(with("\"random\": [", "\"random\": [3, "), HasSubstr("must hold objects"));
  EXPECT_FALSE(parse_drive_probes(good.substr(0, good.size() / 2), "f").is_ok());
  const std::vector<DriveProbe> many(65, made_up());
  EXPECT_THAT(parse_drive_probes(format_drive_probes(many), "f").status().message(),
              HasSubstr("at most 64"));
  DriveProbe empty = made_up();
  empty.random.clear();
  EXPECT_THAT(parse_drive_probes(format_drive_probes(std::vector{empty}), "f").status().message(),
              HasSubstr("must not be empty"));
}

class DriveProbeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_.write("a", random_bytes(1'000'001, 1));
    directory_.write("small", "x");
    for (const char* name : {"small", "a"}) {
      auto file = File::open(faults_, directory_ / name);
      ASSERT_TRUE(file.is_ok());
      files_.push_back(std::move(*file));
    }
    pointers_ = {&files_[0], &files_[1]};
    options_.record_bytes = 10'000;
    options_.seconds_per_depth = 0.002;
  }

  TemporaryDirectory directory_;
  FaultPoints faults_;
  SteadyClock clock_;
  std::vector<File> files_;
  std::vector<const File*> pointers_;
  DriveProbeOptions options_;
};

TEST_F(DriveProbeTest, MeasuresEachDepthAndChangesNothing) {
  for (const auto kind : {ReadBackendKind::kPread, ReadBackendKind::kAuto}) {
    options_.backend = kind;
    const auto probe = probe_drive(clock_, faults_, pointers_, options_);
    ASSERT_TRUE(probe.is_ok()) << probe.status().message();
    ASSERT_EQ(probe->random.size(), 6u);
    for (const DriveRate& rate : probe->random) EXPECT_GT(rate.bytes_per_second, 0);
    EXPECT_GT(probe->sequential_bytes_per_second, 0);
    EXPECT_EQ(probe->record_class_bytes, 16384);
    EXPECT_EQ(probe->backend, kind == ReadBackendKind::kAuto && has_uring() ? "io_uring" : "pread");
    EXPECT_EQ(probe->drive, *drive_identity(files_[0]));
  }
  for (const File& file : files_) EXPECT_TRUE(file.check_unchanged().is_ok());
}

TEST_F(DriveProbeTest, LargeRecordsLeaveOutGreatDepths) {
  options_.max_buffer_bytes = 4 * 12288;
  const auto probe = probe_drive(clock_, faults_, pointers_, options_);
  ASSERT_TRUE(probe.is_ok());
  EXPECT_EQ(probe->random.back().depth, 4);
}

TEST_F(DriveProbeTest, RecordsInPartsAreAQuestionOfTheirOwn) {
  const std::string path = directory_ / "drives.json";
  options_.record_bytes = 11'000;
  const auto ask = [&] {
    auto answer = probe_drive_cached(clock_, faults_, pointers_, options_, path);
    EXPECT_TRUE(answer.is_ok()) << answer.status().message();
    return *answer;
  };
  EXPECT_EQ(ask().probe.parts, 1);
  options_.part_bytes = {8'000, 2'000, 1'000};
  const CachedDriveProbe first = ask();
  EXPECT_FALSE(first.was_cached);
  EXPECT_EQ(first.probe.parts, 3);
  EXPECT_GT(first.probe.sequential_bytes_per_second, 0);
  EXPECT_TRUE(ask().was_cached);
}

TEST_F(DriveProbeTest, NeedsARecordAndAWorkingDrive) {
  options_.record_bytes = 2'000'000;
  EXPECT_THAT(probe_drive(clock_, faults_, pointers_, options_).status().message(),
              HasSubstr("none of 2 files holds a record"));
  options_.record_bytes = 10'000;
  faults_.arm("io.stream.read", 2, io_error("x"));
  faults_.arm("io.stream.retry", 1, io_error("x"));
  const Status failed = probe_drive(clock_, faults_, pointers_, options_).status();
  EXPECT_EQ(failed.code(), StatusCode::kIo);
  EXPECT_THAT(failed.message(), HasSubstr("cannot probe the drive"));
}

TEST_F(DriveProbeTest, IsCachedByWhatWasAsked) {
  const std::string path = directory_ / "cache/motley/drives.json";
  const auto ask = [&](int64_t max_age_s = 1000) {
    auto answer = probe_drive_cached(clock_, faults_, pointers_, options_, path, max_age_s);
    EXPECT_TRUE(answer.is_ok());
    EXPECT_EQ(answer->note, "");
    return *answer;
  };
  const CachedDriveProbe first = ask();
  EXPECT_FALSE(first.was_cached);
  EXPECT_TRUE(ask().was_cached);
  options_.record_bytes = 12'000;  // of the same class
  EXPECT_TRUE(ask().was_cached);
  EXPECT_EQ(ask().probe.drive, first.probe.drive);
  options_.cache_use = CacheUse::kBuffered;
  ask();
  options_.cache_use = CacheUse::kBypass;
  EXPECT_TRUE(ask().was_cached);  // both are kept
  options_.record_bytes = 20'000;
  EXPECT_FALSE(ask().was_cached);
  EXPECT_FALSE(ask(-1).was_cached);  // too old
}

TEST_F(DriveProbeTest, IsFoundForAnyPathOfItsDrive) {
  const std::string path = directory_ / "drives.json";
  EXPECT_FALSE(find_drive_probe(faults_, directory_.path(), 12'000, path).has_value());
  EXPECT_FALSE(find_drive_probe(faults_, directory_.path(), 12'000, "").has_value());
  const std::string here = *drive_identity(directory_.path());
  EXPECT_EQ(here, *drive_identity(files_[0]));
  std::vector<DriveProbe> probes = {made_up(here), made_up(here), made_up("elsewhere")};
  probes[0].record_class_bytes = 16384;
  probes[1].taken_unix_s += 100;
  directory_.write("drives.json", format_drive_probes(probes));
  EXPECT_EQ(find_drive_probe(faults_, directory_.path(), 12'000, path), probes[0]);
  EXPECT_EQ(find_drive_probe(faults_, directory_.path(), 9'000'000, path), probes[1]);
  EXPECT_FALSE(find_drive_probe(faults_, directory_ / "absent", 12'000, path).has_value());
  directory_.write("drives.json", "{");
  EXPECT_FALSE(find_drive_probe(faults_, directory_.path(), 12'000, path).has_value());
}

TEST_F(DriveProbeTest, AStrangeCacheIsNotUsedAndReplaced) {
  const std::string path = directory_ / "drives.json";
  for (const std::string& strange : {std::string("{"), std::string(300'000, ' ')}) {
    directory_.write("drives.json", strange);
    const auto probed = probe_drive_cached(clock_, faults_, pointers_, options_, path);
    ASSERT_TRUE(probed.is_ok());
    EXPECT_FALSE(probed->was_cached);
    EXPECT_THAT(probed->note, HasSubstr("drive cache ignored: " + path));
    EXPECT_TRUE(probe_drive_cached(clock_, faults_, pointers_, options_, path)->was_cached);
  }
  // A folder cannot be made below a file.
  const auto unwritten =
      probe_drive_cached(clock_, faults_, pointers_, options_, directory_ / "small/drives.json");
  ASSERT_TRUE(unwritten.is_ok());
  EXPECT_THAT(unwritten->note, HasSubstr("drive cache not written"));
  EXPECT_TRUE(probe_drive_cached(clock_, faults_, pointers_, options_, "").is_ok());
}

TEST(DriveCache, ItsPlaceFollowsTheEnvironment) {
  const std::string path = default_drive_cache_path();
  EXPECT_TRUE(path.empty() || path.ends_with("/motley/drives.json")) << path;
}

}  // namespace
}  // namespace motley
