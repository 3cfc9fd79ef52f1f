#include "experts/cache/route_trace.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/hash.h"
#include "experts/cache/little_endian.h"
#include "support/test_files.h"

namespace motley {
namespace {

const RouteShape kShape{.layers = 3, .experts = 300, .top = 2, .model = "a model"};
using Ids = std::vector<uint16_t>;

class RouteTraceTest : public testing::Test {
 protected:
  std::string path() const { return folder_ / "routes"; }
  void write(int tokens) {
    auto writer = RouteTraceWriter::create(faults_, path(), kShape);
    ASSERT_TRUE(writer.is_ok()) << writer.status().message();
    for (int i = 0; i < tokens; ++i) {
      const auto id = static_cast<uint16_t>(i);
      const Ids ids = {id, 299, 7, static_cast<uint16_t>(id + 10), 1, 0};
      ASSERT_TRUE(writer->append(i % 3 ? RouteRole::kDecode : RouteRole::kPrefill, ids).is_ok());
    }
    ASSERT_TRUE(writer->flush().is_ok());
    ASSERT_EQ(writer->tokens(), tokens);
  }
  Result<RouteTrace> read() { return read_route_trace(faults_, path()); }
  std::vector<std::byte> bytes() { return folder_.read("routes"); }

  FaultPoints faults_;
  TemporaryDirectory folder_;
};

TEST_F(RouteTraceTest, WhatIsWrittenIsRead) {
  write(5);
  const auto trace = read();
  ASSERT_TRUE(trace.is_ok()) << trace.status().message();
  EXPECT_EQ(trace->shape.layers, 3);
  EXPECT_EQ(trace->shape.experts, 300);
  EXPECT_EQ(trace->shape.top, 2);
  EXPECT_EQ(trace->shape.model, "a model");
  ASSERT_EQ(trace->tokens(), 5);
  EXPECT_EQ(trace->roles[0], RouteRole::kPrefill);
  EXPECT_EQ(trace->roles[1], RouteRole::kDecode);
  EXPECT_EQ(trace->of(4, 1)[1], 14);
  EXPECT_EQ(trace->of(4, 0)[1], 299);
  EXPECT_EQ(trace->cut_bytes, 0);
}

// Whatever moment a run is killed at.
TEST_F(RouteTraceTest, ACutFileReadsUpToItsLastWholeRecord) {
  write(4);
  const std::vector<std::byte> all = bytes();
  const auto record = static_cast<size_t>(kShape.record_bytes());
  const size_t header = all.size() - 4 * record;
  for (size_t size = 0; size < all.size(); ++size) {
    const auto trace = parse_route_trace(std::span(all).first(size));
    if (size < header) {
      EXPECT_FALSE(trace.is_ok()) << size;
      continue;
    }
    ASSERT_TRUE(trace.is_ok()) << size << trace.status().message();
    EXPECT_EQ(trace->tokens(), static_cast<int64_t>((size - header) / record));
    EXPECT_EQ(trace->cut_bytes, static_cast<int64_t>((size - header) % record));
  }
}

TEST_F(RouteTraceTest, AChangedHeaderIsNoticed) {
  write(1);
  const std::vector<std::byte> all = bytes();
  const size_t header = all.size() - static_cast<size_t>(kShape.record_bytes());
  for (size_t i = 0; i < header; ++i) {
    std::vector<std::byte> changed = all;
    changed[i] ^= std::byte{0x10};
    EXPECT_FALSE(parse_route_trace(changed).is_ok()) << i;
  }
}

TEST_F(RouteTraceTest, RecordsThatCannotBeAreRefusedWithTheirPlace) {
  write(2);
  std::vector<std::byte> all = bytes();
  const size_t second = all.size() - static_cast<size_t>(kShape.record_bytes());
  std::vector<std::byte> changed = all;
  changed[second] = std::byte{0};
  EXPECT_EQ(parse_route_trace(changed).status().message(),
            "trace of routes: token 1 has the unknown role 0xd000");
  changed = all;
  changed[second + 2 + 4 + 1] = std::byte{0xFF};  // layer 1, rank 0
  EXPECT_NE(parse_route_trace(changed).status().message().find("token 1, layer 1"),
            std::string::npos);
  changed = all;
  changed[second + 2 + 8] = changed[second + 2 + 10];  // layer 2 twice the same
  EXPECT_EQ(parse_route_trace(changed).status().code(), StatusCode::kCorrupt);
}

std::vector<std::byte> sealed(uint32_t version, uint32_t layers, uint32_t experts, uint32_t top,
                              std::string_view name) {
  std::vector<std::byte> bytes;
  append_text(bytes, "MTLROUTE");
  for (const uint32_t field : {version, layers, experts, top}) append_little(bytes, field);
  append_little(bytes, static_cast<uint32_t>(name.size()));
  append_text(bytes, name);
  append_little(bytes, hash_bytes(bytes));
  return bytes;
}

TEST(RouteTraceLimits, HostileHeadersWithAGoodChecksum) {
  EXPECT_TRUE(parse_route_trace(sealed(1, 4096, 65536, 1024, "m")).is_ok());
  EXPECT_EQ(parse_route_trace(sealed(2, 1, 8, 2, "m")).status().code(), StatusCode::kUnsupported);
  EXPECT_FALSE(parse_route_trace(sealed(1, 0, 8, 2, "m")).is_ok());
  EXPECT_FALSE(parse_route_trace(sealed(1, 0xFFFFFFFF, 8, 2, "m")).is_ok());
  EXPECT_FALSE(parse_route_trace(sealed(1, 1, 65537, 2, "m")).is_ok());
  EXPECT_FALSE(parse_route_trace(sealed(1, 1, 8, 9, "m")).is_ok());
  EXPECT_FALSE(parse_route_trace(sealed(1, 1, 65536, 1025, "m")).is_ok());
  EXPECT_FALSE(parse_route_trace(sealed(1, 1, 8, 2, "\x1b[2J")).is_ok());
  EXPECT_FALSE(parse_route_trace(sealed(1, 1, 8, 2, std::string(513, 'a'))).is_ok());
}

TEST_F(RouteTraceTest, TheWriterRefusesWhatTheReaderWould) {
  EXPECT_FALSE(
      RouteTraceWriter::create(faults_, path(), {.layers = 1, .experts = 4, .top = 5}).is_ok());
  auto writer = RouteTraceWriter::create(faults_, path(), kShape);
  EXPECT_FALSE(writer->append(RouteRole::kDecode, Ids{1, 2, 3}).is_ok());
  EXPECT_FALSE(writer->append(RouteRole::kDecode, Ids{1, 2, 3, 4, 5, 300}).is_ok());
  EXPECT_FALSE(writer->append(RouteRole::kDecode, Ids{1, 2, 3, 3, 5, 6}).is_ok());
  EXPECT_EQ(writer->tokens(), 0);
}

TEST_F(RouteTraceTest, LongTracesAreWrittenAsTheyGrowAndOldOnesReplaced) {
  write(290);
  write(3);
  EXPECT_EQ(read()->tokens(), 3);
  auto writer = RouteTraceWriter::create(faults_, path(), kShape);
  for (int i = 0; i < 20000; ++i) {
    ASSERT_TRUE(writer->append(RouteRole::kDecode, Ids{1, 2, 3, 4, 5, 6}).is_ok());
  }
  EXPECT_GT(read()->tokens(), 15000) << "blocks are on disk before the end";
}

TEST_F(RouteTraceTest, FailuresOfTheDiskAreReported) {
  faults_.arm("io.open", 1, io_error("injected"));
  EXPECT_EQ(RouteTraceWriter::create(faults_, path(), kShape).status().code(), StatusCode::kIo);
  auto writer = RouteTraceWriter::create(faults_, path(), kShape);
  faults_.arm("io.write", 1, io_error("injected"));
  ASSERT_TRUE(writer->append(RouteRole::kDecode, Ids{1, 2, 3, 4, 5, 6}).is_ok());
  EXPECT_EQ(writer->flush().code(), StatusCode::kIo);
  EXPECT_TRUE(writer->flush().is_ok()) << "nothing is lost";
  EXPECT_EQ(read()->tokens(), 1);
  EXPECT_EQ(RouteTraceWriter::create(faults_, folder_ / "no/such", kShape).status().code(),
            StatusCode::kIo);
  EXPECT_EQ(read_route_trace(faults_, folder_ / "none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace motley
