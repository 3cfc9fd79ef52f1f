#include "experts/pack/pack_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <random>

#include "experts/pack/pack_check.h"
#include "experts/pack/pack_set.h"
#include "experts/pack/pack_test_util.h"

namespace motley {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Every file of a pack but the lock.
std::map<std::string, std::vector<std::byte>> contents(const TemporaryDirectory& parent,
                                                       const std::string& name) {
  std::map<std::string, std::vector<std::byte>> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent / name)) {
    const std::string file = entry.path().filename().string();
    if (file != PackDirectory::kLockName) files[file] = parent.read(name + "/" + file);
  }
  return files;
}

void expect_all_records(PackTestModel& model, const std::vector<std::string>& directories) {
  const auto set = PackSet::open(model.context(), directories, model.pack());
  ASSERT_TRUE(set.is_ok()) << set.status().message();
  const ExpertLayout layout = set->layout(model.pack().layers);
  const auto files = set->open_files();
  ASSERT_TRUE(files.is_ok()) << files.status().message();
  AlignedBuffer slot = AlignedBuffer::allocate(static_cast<size_t>(layout.slot_bytes())).value();
  for (int layer = 0; layer < layout.layers(); ++layer) {
    for (int expert = 0; expert < layout.experts(layer); ++expert) {
      const std::vector<std::byte> expected = model.record(layer, expert);
      const ExpertReads reads = layout.reads(layer, expert);
      for (uint32_t copy = 0; copy < directories.size(); ++copy) {
        if ((layout.copies(layer, expert) >> copy & 1) == 0) continue;
        for (const ExpertRead& read : {reads.gate_up.front(), reads.down.front()}) {
          const auto file =
              static_cast<size_t>(read.file + static_cast<int>(copy) * layout.files_per_copy());
          EXPECT_EQ((*files)[file].read(read.offset,
                                        slot.bytes().subspan(static_cast<size_t>(read.at),
                                                             static_cast<size_t>(read.bytes))),
                    read.bytes);
        }
        EXPECT_EQ(std::memcmp(slot.data(), expected.data(), expected.size()), 0)
            << layer << " " << expert << " copy " << copy;
      }
    }
  }
}

TEST(PackWriter, EveryLayoutComesBack) {
  for (const TestModelOptions& options : pack_test_layouts()) {
    PackTestModel model(options);
    const TemporaryDirectory out;
    for (const auto& [mirror, count] : {std::pair(false, 1), {false, 3}, {true, 2}}) {
      std::vector<std::string> directories;
      for (int i = 0; i < count; ++i) {
        directories.push_back(out / fmt::format("{}-{}-{}", mirror, count, i));
      }
      const auto result = model.write(directories, mirror);
      ASSERT_TRUE(result.is_ok()) << result.status().message();
      const int64_t experts = options.draft ? 20 : 16;
      EXPECT_EQ(result->written, mirror ? experts * count : experts);
      EXPECT_EQ(result->kept + result->repaired, 0);
      expect_all_records(model, directories);
    }
  }
}

TEST(PackWriter, WhatIsThereIsKept) {
  PackTestModel model;
  const TemporaryDirectory out;
  const auto first = model.write({out / "p"});
  ASSERT_TRUE(first.is_ok());
  const auto before = contents(out, "p");
  const auto second = model.write({out / "p"});
  ASSERT_TRUE(second.is_ok());
  EXPECT_EQ(second->kept, first->written);
  EXPECT_EQ(second->written, 0);
  EXPECT_EQ(contents(out, "p"), before);
}

// Whatever of a pack is cut off or damaged, a rerun makes the same pack of it.
TEST(PackWriter, CutAndDamagedPacksAreCompleted) {
  PackTestModel model({.mlx = true, .quantized = MlxAffineFormat{4, 32}});
  const TemporaryDirectory out;
  ASSERT_TRUE(model.write({out / "p"}).is_ok());
  const auto whole = contents(out, "p");
  std::mt19937_64 random(5);
  for (int round = 0; round < 40; ++round) {
    auto file = whole.begin();
    std::advance(file, random() % whole.size());
    if (file->first == kPackManifestName) continue;
    const std::string path = out / ("p/" + file->first);
    const uint64_t at = random() % file->second.size();
    switch (round % 3) {
      case 0:
        fs::resize_file(path, at);
        break;
      case 1: {
        std::vector<std::byte> bytes = file->second;
        bytes[at] ^= static_cast<std::byte>(1 << random() % 8);
        out.write("p/" + file->first, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        break;
      }
      default:
        fs::remove(path);
    }
    const auto result = model.write({out / "p"});
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    EXPECT_EQ(result->kept + result->written, result->records);
    // A byte may be one of a gap that no plane covers: it is part of the checksum all the same.
    EXPECT_GT(result->written, 0) << file->first << " at " << at;
    ASSERT_EQ(contents(out, "p"), whole) << round;
  }
}

TEST(PackWriter, AMirrorIsCompletedFromTheModelAlone) {
  PackTestModel model;
  const TemporaryDirectory out;
  ASSERT_TRUE(model.write({out / "a"}).is_ok());
  const auto result = model.write({out / "a", out / "b"}, true);
  ASSERT_TRUE(result.is_ok()) << result.status().message();
  EXPECT_EQ(result->kept, 20);
  EXPECT_EQ(result->written, 20);
  EXPECT_EQ(contents(out, "a"), contents(out, "b"));
}

TEST(PackWriter, AfterAnyFailureTheNextRunGoesOn) {
  for (const auto& [point, step] : {std::pair("io.write", 5), std::pair("io.stream.direct", 1),
                                    std::pair("io.open", 3), std::pair("io.publish", 1)}) {
    PackTestModel model;
    const TemporaryDirectory out;
    Status status;
    int failures = 0;
    for (int64_t nth = 1;; nth += step) {
      model.faults().arm(point, nth, io_error("injected"));
      status = model.write({out / "p"}).status();
      model.faults().clear();
      if (status.is_ok()) break;
      EXPECT_THAT(status.message(), HasSubstr("injected"));
      ASSERT_LT(++failures, 60);
    }
    // Without O_DIRECT files are read and written all the same.
    EXPECT_EQ(failures > 0, std::string_view(point) != "io.stream.direct") << point;
    expect_all_records(model, {out / "p"});
  }
}

TEST(PackWriter, AnUnreadableExpertStopsTheWriterAndTheRestIsKept) {
  PackTestModel model;
  const TemporaryDirectory out;
  model.faults().arm("io.stream.read", 3, io_error("drive", EIO));
  model.faults().arm("io.stream.retry", 1, io_error("drive", EIO));
  const Status status = model.write({out / "p"}).status();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("of layer 0: "));
  EXPECT_THAT(status.message(), HasSubstr("model.safetensors: cannot read"));
  const auto refused = PackSet::open(model.context(), {{out / "p"}}, model.pack());
  EXPECT_THAT(refused.status().message(), HasSubstr("/p: 1 experts are not written or damaged"));
  const auto result = model.write({out / "p"});
  ASSERT_TRUE(result.is_ok());
  EXPECT_EQ(result->written, 1);
}

TEST(PackWriter, AStoppedWriterSaysHowToGoOn) {
  PackTestModel model;
  const TemporaryDirectory out;
  const auto stopped = write_packs(model.context(), model.pack(),
                                   {.directories = {out / "p"}, .stop = [] { return true; }});
  EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
  EXPECT_THAT(stopped.status().message(),
              HasSubstr("of 20 records written; the same command goes"));
  ASSERT_TRUE(model.write({out / "p"}).is_ok());
  expect_all_records(model, {out / "p"});
}

TEST(PackWriter, ForeignDirectoriesAreLeftAlone) {
  PackTestModel model;
  const TemporaryDirectory out;
  const auto error = [&](std::vector<std::string> directories, bool mirror = false) {
    return model.write(std::move(directories), mirror).status().message();
  };
  fs::create_directory(out / "full");
  out.write("full/precious", "x");
  EXPECT_THAT(error({out / "full"}), HasSubstr("/full: the directory is not empty and no pack"));
  EXPECT_EQ(out.read("full/precious").size(), 1U);
  EXPECT_THAT(error({out / "full/precious"}), HasSubstr("cannot create"));

  // The same names and shapes, other experts.
  TestModel other_weights;
  for (auto& [name, tensor] : other_weights.tensors) {
    if (name.find(".experts.") == std::string::npos) continue;
    for (std::byte& byte : tensor.bytes) byte ^= std::byte{1};
  }
  PackTestModel other(std::move(other_weights));
  ASSERT_TRUE(other.write({out / "other"}).is_ok());
  const auto before = contents(out, "other");
  EXPECT_THAT(error({out / "other"}), HasSubstr("holds the experts of another checkpoint"));
  EXPECT_EQ(contents(out, "other"), before);
  EXPECT_THAT(PackSet::open(model.context(), {{out / "other"}}, model.pack()).status().message(),
              HasSubstr("/other: is a pack of another checkpoint than "));

  ASSERT_TRUE(model.write({out / "a", out / "b"}).is_ok());
  EXPECT_THAT(error({out / "b"}), HasSubstr("holds part 2 of 2 of this model, not part 1 of 1"));
  out.write("a/motley-pack.json", "{");
  EXPECT_THAT(error({out / "a", out / "b"}), HasSubstr("/a/motley-pack.json: "));
}

TEST(PackWriter, WhatAKilledWriterLeavesIsNoObstacle) {
  PackTestModel model;
  const TemporaryDirectory out;
  fs::create_directory(out / "p");
  out.write("p/.motley-lock", "");
  out.write("p/motley-pack.json.partial-4711", "{\"form");
  ASSERT_TRUE(model.write({out / "p"}).is_ok());
  EXPECT_FALSE(fs::exists(out / "p/motley-pack.json.partial-4711"));
  expect_all_records(model, {out / "p"});
}

TEST(PackWriter, WritersAndReadersExcludeEachOther) {
  PackTestModel model;
  const TemporaryDirectory out;
  ASSERT_TRUE(model.write({out / "p"}).is_ok());
  {
    const auto reading = PackSet::open(model.context(), {{out / "p"}}, model.pack());
    ASSERT_TRUE(reading.is_ok());
    EXPECT_TRUE(PackSet::open(model.context(), {{out / "p"}}, model.pack()).is_ok());
    EXPECT_THAT(model.write({out / "p"}).status().message(), HasSubstr("/p: is in use by another"));
  }
  const auto writing =
      PackDirectory::open(model.faults(), out / "p", PackDirectory::Access::kRepair);
  ASSERT_TRUE(writing.is_ok());
  EXPECT_THAT(model.write({out / "p"}).status().message(), HasSubstr("/p: is in use by another"));
  EXPECT_THAT(PackSet::open(model.context(), {{out / "p"}}, model.pack()).status().message(),
              HasSubstr("\"motley pack\" is writing there"));
}

TEST(PackWriter, ExpertsOfOneLayerInTwoFormatsAreRefused) {
  PackTestModel model;
  PackModel mixed = model.pack();
  mixed.layers[1][2].down.rows *= 2;
  EXPECT_THAT(manifest_of(mixed, 1, 0).status().message(),
              HasSubstr("the experts of layer 1 differ in format"));
  EXPECT_THAT(manifest_of(model.pack(), 5, 0).status().message(),
              HasSubstr("the 4 experts of layer 0 cannot be split over 5"));
  mixed.layers.assign(3, {});
  EXPECT_THAT(manifest_of(mixed, 1, 0).status().message(), HasSubstr("no routed experts"));
}

}  // namespace
}  // namespace motley
