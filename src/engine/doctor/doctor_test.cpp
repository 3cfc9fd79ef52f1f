#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "engine/doctor/drive_check.h"
#include "engine/doctor/finding.h"
#include "engine/doctor/system_checks.h"
#include "support/test_files.h"

namespace motley {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// A finding's details must be the members of an object.
Json details(const Finding& finding) {
  return Json::parse("{" + finding.details + "}");
}

TEST(Doctor, ReportsTheWorstAndWrapsLongLines) {
  std::vector<Finding> findings = {
      {.topic = "a", .fact = "fine", .meaning = "works"},
      {.topic = "b",
       .health = Health::kSlow,
       .fact = "many words that go on and on for longer than any terminal is wide, so that they "
               "must be broken somewhere",
       .meaning = "slow",
       .remedy = "do this"}};
  EXPECT_EQ(overall(findings), Health::kSlow);
  const std::string table = findings_table(findings);
  EXPECT_THAT(table, HasSubstr("b            slow many words"));
  EXPECT_THAT(table, HasSubstr("\n                  -> do this\n"));
  EXPECT_THAT(table, HasSubstr("motley works here"));
  for (size_t begin = 0; begin < table.size();) {
    const size_t end = table.find('\n', begin);
    EXPECT_LE(end - begin, 100U);
    begin = end + 1;
  }
  findings.push_back({.topic = "c", .health = Health::kBroken, .fact = "x", .meaning = "y"});
  EXPECT_THAT(findings_table(findings), HasSubstr("motley cannot work here"));
  const Json json = Json::parse(findings_json(findings));
  EXPECT_EQ(json.at("health"), "BAD");
  EXPECT_EQ(json.at("findings").size(), 3U);
  EXPECT_THAT(findings_table({}), HasSubstr("Nothing is in the way"));
}

TEST(Doctor, JudgesTheProcessor) {
  const std::vector<CpuIsa> all = {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512};
  const Finding best = judge_processor({"CPU \"x\"", all, CpuIsa::kAvx512, false});
  EXPECT_EQ(best.health, Health::kGood);
  EXPECT_EQ(details(best).at("instruction_set"), "avx512");
  const Finding chosen = judge_processor({"CPU", all, CpuIsa::kAvx2, false});
  EXPECT_EQ(chosen.health, Health::kSlow);
  EXPECT_THAT(chosen.remedy, HasSubstr("avx512 is possible"));
  const Finding old = judge_processor({"CPU", {CpuIsa::kPortable}, CpuIsa::kPortable, false});
  EXPECT_EQ(old.health, Health::kSlow);
  EXPECT_THAT(old.remedy, HasSubstr("needs AVX2"));
}

TEST(Doctor, JudgesCores) {
  CpuTopology topology;
  topology.physical_cores = 4;
  topology.cpus = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(judge_cores(topology, 1).health, Health::kGood);
  EXPECT_THAT(judge_cores(topology, 1).fact, HasSubstr("4 cores, 8 logical processors, 1 memory"));
  EXPECT_THAT(judge_cores(topology, 2).remedy, HasSubstr("numactl"));
  topology.quota_cores = 1.5;
  EXPECT_EQ(judge_cores(topology, 1).health, Health::kSlow);
  EXPECT_EQ(details(judge_cores(topology, 1)).at("threads"), 2);
}

TEST(Doctor, JudgesMemoryAndItsLimit) {
  SystemMemory memory;
  memory.total_bytes = 32'000'000'000;
  memory.available_bytes = 20'000'000'000;
  EXPECT_EQ(judge_memory(memory).health, Health::kGood);
  EXPECT_EQ(judge_control_group({"v2", memory}).health, Health::kGood);
  EXPECT_TRUE(details(judge_control_group({"", memory})).at("limit_bytes").is_null());
  memory.group_limit_bytes = 4'000'000'000;
  memory.group_available_bytes = 3'000'000'000;
  EXPECT_THAT(judge_control_group({"v1", memory}).fact,
              HasSubstr("4.00 GB by control groups v1, 3.00 of it available"));
  memory.group_available_bytes = 1'000'000;
  EXPECT_EQ(judge_control_group({"v2", memory}).health, Health::kBroken);
  memory.available_bytes = 1'000'000'000;
  EXPECT_EQ(judge_memory(memory).health, Health::kSlow);
  memory.available_bytes = 10'000'000;
  EXPECT_EQ(judge_memory(memory).health, Health::kBroken);
}

TEST(Doctor, JudgesLockingHugePagesAndReads) {
  EXPECT_EQ(judge_locked_memory({true, 0, true}).health, Health::kGood);
  EXPECT_EQ(judge_locked_memory({false, 8 << 20, false}).health, Health::kGood);
  EXPECT_EQ(judge_locked_memory({false, 8 << 20, true}).health, Health::kSlow);
  EXPECT_TRUE(details(judge_locked_memory({true, 0, true})).at("limit_bytes").is_null());
  EXPECT_EQ(judge_huge_pages("always [madvise] never").health, Health::kGood);
  EXPECT_EQ(judge_huge_pages("[always] madvise never").health, Health::kGood);
  EXPECT_THAT(judge_huge_pages("always madvise [never]").remedy, HasSubstr("madvise >"));
  EXPECT_EQ(judge_huge_pages("").health, Health::kSlow);
  EXPECT_EQ(judge_reads("io_uring", "").health, Health::kGood);
  const Finding pool = judge_reads("pread", "io_uring: Operation not permitted");
  EXPECT_EQ(pool.health, Health::kSlow);
  EXPECT_THAT(pool.fact, HasSubstr("Operation not permitted"));
}

TEST(Doctor, JudgesTheGpu) {
  EXPECT_TRUE(details(judge_gpu("not built", {})).at("cuda").is_null());
  const Finding found = judge_gpu("13.0", {"A", "B"});
  EXPECT_THAT(found.fact, HasSubstr("A, B; built with CUDA 13.0"));
  EXPECT_EQ(details(found).at("devices").size(), 2U);
}

DriveFacts fast_drive() {
  return {.path = "/models",
          .device = "/dev/nvme0n1",
          .file_system = "ext4",
          .block_bytes = 512,
          .memory_alignment = 4,
          .probe = DriveProbe{.backend = "io_uring",
                              .is_direct = true,
                              .random = {{1, 1e9}, {8, 6e9}},
                              .sequential_bytes_per_second = 7e9}};
}

TEST(Doctor, JudgesADrive) {
  const Finding fast = judge_drive(fast_drive());
  EXPECT_EQ(fast.health, Health::kGood);
  EXPECT_THAT(fast.fact, HasSubstr("1.00 at 1, 6.00 at 8; in order 7.00"));
  EXPECT_THAT(fast.meaning, HasSubstr("6.0 tok/s at most"));
  EXPECT_EQ(details(fast).at("random").size(), 2U);
  DriveFacts drive = fast_drive();
  drive.is_rotating = true;  // as a virtual drive claims
  EXPECT_EQ(judge_drive(drive).health, Health::kGood);
  drive.probe->random = {{1, 1e8}};
  EXPECT_THAT(judge_drive(drive).remedy, HasSubstr("rotating"));
  drive.is_rotating = false;
  EXPECT_THAT(judge_drive(drive).remedy, HasSubstr("faster drive"));
  drive = fast_drive();
  drive.probe->is_direct = false;
  drive.probe->reason = "refused";
  EXPECT_THAT(judge_drive(drive).fact, HasSubstr("no O_DIRECT: refused"));
  EXPECT_EQ(judge_drive(drive).health, Health::kSlow);
  drive.probe.reset();
  drive.reason = "full";
  EXPECT_THAT(judge_drive(drive).meaning, HasSubstr("not known: full"));
  EXPECT_EQ(details(judge_drive(drive)).at("reason"), "full");
}

TEST(Doctor, FindsTheMountOfADevice) {
  const std::string text =
      "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
      "23 22 0:21 / /dev/shm rw - tmpfs shm rw\n"
      "broken\n24 22 254:9 / /x rw\n";
  EXPECT_EQ(find_mount(text, 254, 0)->source, "/dev/vda");
  EXPECT_EQ(find_mount(text, 0, 21)->type, "tmpfs");
  EXPECT_FALSE(find_mount(text, 254, 9).has_value());
  EXPECT_FALSE(find_mount(text, 1, 1).has_value());
}

TEST(Doctor, ExaminesFilesThatAreThere) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "below");
  directory.write("below/large", std::string(size_t{5} << 20, 'x'));
  const SteadyClock clock;
  FaultPoints faults;
  const DriveCheckOptions options{.cache_path = directory / "drives.json",
                                  .seconds_per_depth = 0.005};
  // A file by itself may be small only where nothing can be written beside it.
  for (const std::string& path : {directory.path(), directory / "below/large"}) {
    const auto facts = examine_drive(clock, faults, path, options);
    ASSERT_TRUE(facts.is_ok()) << facts.status().message();
    ASSERT_TRUE(facts->probe.has_value()) << facts->reason;
    EXPECT_FALSE(facts->file_system.empty());
    EXPECT_GT(facts->block_bytes, 0);
    // What was measured on a sample says too little to be kept.
    EXPECT_NE(facts->is_sample, std::filesystem::exists(options.cache_path));
  }
  EXPECT_EQ(examine_drive(clock, faults, directory / "absent", options).status().code(),
            StatusCode::kNotFound);
}

TEST(Doctor, LooksAtThisMachine) {
  const auto findings = check_system("");
  ASSERT_TRUE(findings.is_ok()) << findings.status().message();
  EXPECT_EQ(findings->size(), 8U);
  for (const Finding& finding : *findings) {
    EXPECT_FALSE(finding.fact.empty() || finding.meaning.empty()) << finding.topic;
    EXPECT_TRUE(details(finding).is_object());
  }
  EXPECT_FALSE(check_system("z80").is_ok());
}

}  // namespace
}  // namespace motley
