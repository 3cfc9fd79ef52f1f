#include "io/safetensors.h"

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <numeric>
#include <random>

#include "io/file.h"
#include "io/safetensors_writer.h"
#include "support/test_files.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> as_file(const std::string& image) {
  return std::as_bytes(std::span(image));
}

Result<SafetensorsHeader> read(std::string_view header, size_t data_bytes) {
  const std::string image = raw_safetensors(header, std::string(data_bytes, 'x'));
  return read_safetensors_header(as_file(image));
}

TEST(Safetensors, ReadsEntriesInOrderOfTheirBytes) {
  const auto header = read(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
      R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
      R"("s":{"dtype":"I64","shape":[],"data_offsets":[28,36]},)"
      R"("e":{"dtype":"F32","shape":[0,9],"data_offsets":[36,36]}}   )",
      36);
  ASSERT_TRUE(header.is_ok()) << header.status().message();
  ASSERT_EQ(header->tensors.size(), 4u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_EQ(header->tensors[1].dtype, DType::kF32);
  EXPECT_EQ(header->tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header->tensors[2].shape, std::vector<int64_t>{});
  EXPECT_EQ(header->tensors[3].name, "e");
  EXPECT_EQ(header->metadata.at(0), std::make_pair(std::string("format"), std::string("pt")));
}

struct BadHeader {
  const char* header;
  size_t data_bytes;
  const char* message;
};

class BadSafetensors : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadSafetensors, IsRefusedByName) {
  const auto header = read(GetParam().header, GetParam().data_bytes);
  ASSERT_FALSE(header.is_ok());
  EXPECT_THAT(header.status().message(), HasSubstr(GetParam().message));
  EXPECT_EQ(header.status().message().find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Headers, BadSafetensors,
    ::testing::Values(
        BadHeader{"", 0, "does not begin with '{'"}, BadHeader{"[]", 0, "does not begin with '{'"},
        BadHeader{"\xEF\xBB\xBF{}", 0, "does not begin with '{'"},
        BadHeader{"{", 0, "not valid JSON"}, BadHeader{"{} x", 0, "not valid JSON"},
        BadHeader{"{\"a\":1}", 0, "tensor 'a': the entry must be"},
        BadHeader{"{\"a\":[]}", 0, "tensor 'a': the entry must be"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1]}})", 1, "tensor 'a': the entry must be"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1,
                  "unknown field \"x\""},
        BadHeader{R"({"a":{"dtype":"U9","shape":[1],"data_offsets":[0,1]}})", 1,
                  "tensor 'a': unknown element type \"U9\""},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                  R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                  2, "duplicate name 'a'"},
        BadHeader{R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
                  "duplicate name 'a.dtype'"},
        BadHeader{R"({"__metadata__":{},"__metadata__":{}})", 0, "duplicate name '__metadata__'"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,2]}})", 2,
                  "do not hold the 1 bytes"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1,
                  "do not hold the 1 bytes"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                  R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                  4, "tensor 'b': begins at data byte 2, leaves a hole at byte 1"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                  R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                  3, "tensor 'b': begins at data byte 1, overlaps byte 1"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 3,
                  "2 bytes after the last tensor"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 4,
                  "truncated: tensor 'a' ends at data byte 9 of 4"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,9223372036854775808]}})", 1,
                  "tensor 'a': number 9223372036854775808 exceeds 2^53"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1,
                  "tensor 'a': shape must hold natural numbers"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1,
                  "shape must hold natural numbers"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1e0]}})", 1,
                  "data_offsets must hold natural numbers"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1,
                  "data_offsets needs two numbers"},
        BadHeader{R"({"a":{"dtype":"F64","shape":[9007199254740992,9007199254740992],)"
                  R"("data_offsets":[0,1]}})",
                  1, "overflows"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
                  "more than 8 dimensions"},
        BadHeader{R"({"__metadata__":{"a":{"b":{}}}})", 0, "must be"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[[[[[[[[[[1]]]]]]]]]],"data_offsets":[0,1]}})", 1,
                  "tensor 'a'"},
        BadHeader{"{\"\xFF\":{}}", 0, "not valid JSON"}));

TEST(Safetensors, RefusesLengthsBeforeAllocating) {
  for (const uint64_t length : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{100'000'001}}) {
    std::string image = raw_safetensors("{}", "");
    std::memcpy(image.data(), &length, sizeof length);
    const auto header = read_safetensors_header(as_file(image));
    ASSERT_FALSE(header.is_ok());
    EXPECT_THAT(header.status().message(), HasSubstr("exceeds the limit"));
  }
  std::string image = raw_safetensors("{}", "");
  image[0] = 3;
  EXPECT_THAT(read_safetensors_header(as_file(image)).status().message(), HasSubstr("truncated"));
  EXPECT_THAT(read_safetensors_header(as_file("1234567")).status().message(),
              HasSubstr("too short"));
}

TEST(Safetensors, RefusesLongNames) {
  const std::string header = "{\"" + std::string(513, 'n') + "\":{}}";
  EXPECT_THAT(read(header, 0).status().message(), HasSubstr("name of 513 bytes"));
}

TEST(SafetensorsWriter, AlignsAndRoundTrips) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  const std::string path = directory / "x.safetensors";
  {
    auto writer = SafetensorsWriter::create(faults, path,
                                            {{"odd \"name\"", DType::kU8, {3}},
                                             {"wide", DType::kF32, {4, 16}},
                                             {"half", DType::kBf16, {3}},
                                             {"scalar", DType::kF64, {}}});
    ASSERT_TRUE(writer.is_ok()) << writer.status().message();
    std::vector<float> wide(64);
    for (size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<float>(i);
    ASSERT_TRUE(
        writer->write_all(0, std::span<const uint8_t>(std::array<uint8_t, 3>{7, 8, 9})).is_ok());
    EXPECT_FALSE(std::filesystem::exists(path));
    // A tensor may come in pieces, out of order.
    const auto bytes = std::as_bytes(std::span<const float>(wide));
    ASSERT_TRUE(writer->write(1, 128, bytes.subspan(128)).is_ok());
    ASSERT_TRUE(writer->write(1, 0, bytes.first(128)).is_ok());
    ASSERT_TRUE(
        writer->write_all(2, std::span<const uint16_t>(std::array<uint16_t, 3>{1, 2, 3})).is_ok());
    EXPECT_THAT(writer->finish().message(), HasSubstr("265 of 273"));
    ASSERT_TRUE(writer->write_all(3, std::span<const double>(std::array<double, 1>{2.5})).is_ok());
    ASSERT_TRUE(writer->finish().is_ok());
  }
  const auto file = File::open(faults, path);
  ASSERT_TRUE(file.is_ok());
  std::vector<std::byte> image(static_cast<size_t>(file->size()));
  ASSERT_TRUE(file->read_exact(0, image).is_ok());
  const auto header = read_safetensors_header(image);
  ASSERT_TRUE(header.is_ok()) << header.status().message();
  EXPECT_EQ(header->data_start % 64, 0);
  ASSERT_EQ(header->tensors.size(), 4u);
  EXPECT_EQ(header->tensors[0].name, "wide");
  EXPECT_EQ(header->tensors[1].name, "scalar");
  EXPECT_EQ(header->tensors[2].name, "half");
  EXPECT_EQ(header->tensors[3].name, "odd \"name\"");
  const auto* wide = reinterpret_cast<const float*>(image.data() + header->data_start);
  EXPECT_EQ(wide[63], 63.0f);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(SafetensorsWriter, LeavesNothingBehindWhenItFails) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  {
    auto writer = SafetensorsWriter::create(faults, directory / "x", {{"a", DType::kU8, {1}}});
    ASSERT_TRUE(writer.is_ok());
    faults.arm("io.write", 1, io_error("disk on fire"));
    EXPECT_FALSE(writer->write_all(0, std::span<const uint8_t>(std::array<uint8_t, 1>{1})).is_ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  const auto twice = SafetensorsWriter::create(faults, directory / "x",
                                               {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}});
  EXPECT_THAT(twice.status().message(), HasSubstr("duplicate name 'a'"));
}

// Whatever is declared, the reader accepts, and every tensor keeps its bytes.
TEST(SafetensorsWriter, WritesWhatTheReaderAccepts) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  std::mt19937 random(7);
  const auto up_to = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit + 1));
  };
  for (int round = 0; round < 20; ++round) {
    std::vector<TensorDeclaration> tensors(static_cast<size_t>(up_to(12)));
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i] = {"t" + std::to_string(i), DType::kF16, {}};
      for (int rank = up_to(4); rank > 0; --rank) tensors[i].shape.push_back(up_to(8));
    }
    auto writer = SafetensorsWriter::create(faults, directory / "x", tensors);
    ASSERT_TRUE(writer.is_ok()) << writer.status().message();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::vector<std::byte> bytes(static_cast<size_t>(tensors[i].bytes()), std::byte(i));
      ASSERT_TRUE(writer->write(i, 0, bytes).is_ok());
    }
    ASSERT_TRUE(writer->finish().is_ok());
    const auto file = File::open(faults, directory / "x");
    std::vector<std::byte> image(static_cast<size_t>(file->size()));
    ASSERT_TRUE(file->read_exact(0, image).is_ok());
    const auto header = read_safetensors_header(image);
    ASSERT_TRUE(header.is_ok()) << header.status().message();
    ASSERT_EQ(header->tensors.size(), tensors.size());
    for (const SafetensorsEntry& entry : header->tensors) {
      const size_t index = std::stoul(entry.name.substr(1));
      EXPECT_EQ(entry.end - entry.begin, tensors[index].bytes());
      EXPECT_EQ(entry.begin % std::gcd(int64_t{64}, tensors[index].bytes()), 0) << entry.name;
      for (int64_t at = entry.begin; at < entry.end; ++at) {
        ASSERT_EQ(image[static_cast<size_t>(header->data_start + at)], std::byte(index));
      }
    }
  }
}

}  // namespace
}  // namespace motley
