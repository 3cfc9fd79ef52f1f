#include "io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/fault_points.h"
#include "io/gguf_writer.h"
#include "support/test_files.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Bytes of a file, put together by hand.
class Image {
 public:
  template <typename T>
  Image& put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    return *this;
  }
  Image& text(std::string_view value) {
    put(static_cast<uint64_t>(value.size()));
    const auto bytes = std::as_bytes(std::span(value));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Image& head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    return put(uint32_t{0x46554747}).put(version).put(tensors).put(keys);
  }
  Image& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    text(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) put(dim);
    return put(type).put(offset);
  }
  // Padding, then `count` bytes of data.
  Image& data(size_t count, size_t alignment = 32) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  Result<GgufHeader> read() const { return read_gguf_header(bytes_); }
  std::string error() const {
    const Result<GgufHeader> header = read();
    return header.is_ok() ? "accepted" : header.status().message();
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

constexpr uint32_t kF32Type = 0, kQ8Type = 8, kQ4KType = 12;

TEST(Gguf, ValuesOfEveryType) {
  Image image;
  image.head(0, 13);
  image.text("u8").put(uint32_t{0}).put(uint8_t{200});
  image.text("i8").put(uint32_t{1}).put(int8_t{-5});
  image.text("u16").put(uint32_t{2}).put(uint16_t{60000});
  image.text("i16").put(uint32_t{3}).put(int16_t{-300});
  image.text("u32").put(uint32_t{4}).put(uint32_t{4000000000});
  image.text("i32").put(uint32_t{5}).put(int32_t{-70000});
  image.text("f32").put(uint32_t{6}).put(0.5f);
  image.text("flag").put(uint32_t{7}).put(uint8_t{1});
  image.text("name").put(uint32_t{8}).text("motley");
  image.text("u64").put(uint32_t{10}).put(uint64_t{1} << 40);
  image.text("f64").put(uint32_t{12}).put(0.25);
  image.text("list").put(uint32_t{9}).put(uint32_t{5}).put(uint64_t{2});
  image.put(int32_t{3}).put(int32_t{-4});
  image.text("texts").put(uint32_t{9}).put(uint32_t{8}).put(uint64_t{2}).text("a").text("");
  const auto header = image.read();
  ASSERT_TRUE(header.is_ok()) << header.status().message();
  const GgufMetadata& keys = header->metadata;
  EXPECT_EQ(*keys.integer("u8", 0, 255), 200);
  EXPECT_EQ(*keys.integer("i8", -128, 127), -5);
  EXPECT_EQ(*keys.integer("u16", 0, 65535), 60000);
  EXPECT_EQ(*keys.integer("i16", -400, 0), -300);
  EXPECT_EQ(*keys.integer("u32", 0, INT64_MAX), 4000000000);
  EXPECT_EQ(*keys.integer("i32", INT32_MIN, 0), -70000);
  EXPECT_EQ(*keys.integer("u64", 0, INT64_MAX), int64_t{1} << 40);
  EXPECT_EQ(*keys.number("f32"), 0.5);
  EXPECT_EQ(*keys.number("f64"), 0.25);
  EXPECT_TRUE(*keys.boolean_or("flag", false));
  EXPECT_EQ(*keys.text("name"), "motley");
  EXPECT_THAT(**keys.integers("list"), ElementsAre(3, -4));
  EXPECT_THAT(**keys.texts("texts"), ElementsAre("a", ""));
  EXPECT_THAT(keys.integer("u8", 0, 100).status().message(),
              HasSubstr("'u8': 200 is out of range"));
  EXPECT_THAT(keys.integer("name", 0, 1).status().message(), HasSubstr("must be a whole number"));
  EXPECT_THAT(keys.text("u8").status().message(), HasSubstr("must be a text"));
  EXPECT_EQ(keys.text("nothing").status().code(), StatusCode::kNotFound);
}

TEST(Gguf, TensorsAreRowMajorAndAligned) {
  Image image;
  image.head(2, 1).text("general.alignment").put(uint32_t{4}).put(uint32_t{64});
  image.tensor("b", {256, 3}, kQ4KType, 64).tensor("a", {4, 3}, kF32Type, 0);
  image.data(64 + 3 * 144, 64);
  const auto header = image.read();
  ASSERT_TRUE(header.is_ok()) << header.status().message();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->alignment, 64);
  EXPECT_EQ(header->data_start % 64, 0);
  EXPECT_EQ(header->tensors[0].name, "a");  // in order of their bytes
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(3, 4));
  EXPECT_EQ(header->tensors[1].block, GgufType::kQ4K);
  EXPECT_EQ(header->tensors[1].end - header->tensors[1].begin, 3 * 144);
}

TEST(Gguf, HeadsThatLie) {
  const uint64_t huge = ~uint64_t{0};
  EXPECT_THAT(Image().put(uint32_t{0x46554747}).error(), HasSubstr("truncated"));
  EXPECT_THAT(Image().put(uint64_t{1}).put(uint64_t{1}).error(), HasSubstr("begin with GGUF"));
  EXPECT_THAT(Image().head(0, 0, 1).error(), HasSubstr("version 1 is not supported"));
  EXPECT_THAT(Image().head(0, 0, 0x03000000).error(), HasSubstr("big-endian"));
  EXPECT_THAT(Image().head(huge, 0).error(), HasSubstr("tensors in a file of 24 bytes"));
  EXPECT_THAT(Image().head(0, huge).error(), HasSubstr("keys in a file of 24 bytes"));
  EXPECT_THAT(Image().head(0, 1).put(huge).data(64).error(), HasSubstr("exceeds the limit of 512"));
  EXPECT_THAT(Image().head(0, 1).put(uint64_t{500}).data(64).error(), HasSubstr("truncated"));
  EXPECT_THAT(Image().head(0, 1).text("k").put(uint32_t{99}).data(64).error(),
              HasSubstr("key \"k\": unknown value type 99"));
  EXPECT_THAT(Image().head(0, 1).text("k").put(uint32_t{7}).put(uint8_t{2}).data(64).error(),
              HasSubstr("a boolean of 2"));
  Image twice;
  for (int i = 0; i < 2; ++i) {
    if (i == 0) twice.head(0, 2);
    twice.text("k").put(uint32_t{0}).put(uint8_t{1});
  }
  EXPECT_THAT(twice.error(), HasSubstr("key 'k' appears twice"));
}

TEST(Gguf, ArraysThatLie) {
  const auto array = [](uint32_t type, uint64_t count) {
    Image image;
    image.head(0, 1).text("k").put(uint32_t{9}).put(type).put(count).data(64);
    return image.error();
  };
  EXPECT_THAT(array(9, 1), HasSubstr("an array of arrays"));
  EXPECT_THAT(array(13, 1), HasSubstr("unknown value type 13 in an array"));
  EXPECT_THAT(array(0, ~uint64_t{0}), HasSubstr("exceeds the limit of 8000000"));
  EXPECT_THAT(array(8, 5'000'000), HasSubstr("truncated"));
  EXPECT_THAT(array(10, 100), HasSubstr("truncated"));
}

TEST(Gguf, TensorsThatLie) {
  const auto one = [](std::vector<uint64_t> dims, uint32_t type, uint64_t offset, size_t bytes) {
    Image image;
    image.head(1, 0).tensor("t", std::move(dims), type, offset).data(bytes);
    return image.error();
  };
  EXPECT_EQ(one({8}, kF32Type, 0, 32), "accepted");
  EXPECT_THAT(one({}, kF32Type, 0, 32), HasSubstr("0 dimensions"));
  EXPECT_THAT(one({1, 1, 1, 1, 1}, kF32Type, 0, 32), HasSubstr("5 dimensions"));
  EXPECT_THAT(one({0}, kF32Type, 0, 32), HasSubstr("dimension 0 of 0"));
  EXPECT_THAT(one({~uint64_t{0}}, kF32Type, 0, 32), HasSubstr("dimension 0 of"));
  EXPECT_THAT(one({1 << 30, 1 << 30, 1 << 30}, kF32Type, 0, 32), HasSubstr("overflows"));
  EXPECT_THAT(one({uint64_t{1} << 53, 512}, kF32Type, 0, 32), HasSubstr("overflows"));
  EXPECT_THAT(one({16}, kF32Type, 0, 32),
              HasSubstr("truncated: tensor \"t\" ends at data byte 64"));
  EXPECT_THAT(one({8}, kF32Type, 32, 64), HasSubstr("leaves a hole after 0"));
  EXPECT_THAT(one({8}, kF32Type, uint64_t{1} << 60, 64), HasSubstr("are in no file"));
  EXPECT_THAT(one({8}, kF32Type, 0, 65), HasSubstr("33 bytes after the last tensor"));
  EXPECT_THAT(one({40}, kQ8Type, 0, 64), HasSubstr("no whole blocks of Q8_0"));
  EXPECT_THAT(one({64}, 23, 0, 64), HasSubstr("element type IQ4_XS is not supported; this build"));
  EXPECT_THAT(one({64}, 1000, 0, 64), HasSubstr("element type number 1000 is not supported"));
}

TEST(Gguf, TensorsMustNotMeet) {
  const auto two = [](uint64_t second, std::string_view name = "b") {
    Image image;
    image.head(2, 0).tensor("a", {16}, kF32Type, 0).tensor(name, {8}, kF32Type, second).data(96);
    return image.error();
  };
  EXPECT_EQ(two(64), "accepted");
  EXPECT_THAT(two(32), HasSubstr("tensor \"b\": begins at data byte 32, overlaps what ends at 64"));
  EXPECT_THAT(two(68), HasSubstr("truncated"));
  EXPECT_THAT(two(64, "a"), HasSubstr("duplicate tensor \"a\""));
}

TEST(Gguf, AlignmentMustBeUsable) {
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 17}) {
    Image image;
    image.head(0, 1).text("general.alignment").put(uint32_t{4}).put(alignment).data(64);
    EXPECT_THAT(image.error(), HasSubstr("general.alignment")) << alignment;
  }
}

// Every beginning of a valid file is refused or describes tensors that it holds.
TEST(Gguf, TruncationAnywhereIsRefused) {
  Image image;
  image.head(2, 2).text("general.name").put(uint32_t{8}).text("model");
  image.text("ids").put(uint32_t{9}).put(uint32_t{4}).put(uint64_t{2});
  image.put(uint32_t{1}).put(uint32_t{2});
  image.tensor("a", {32}, kQ8Type, 0).tensor("b", {8}, kF32Type, 64).data(96);
  ASSERT_EQ(image.error(), "accepted");
  for (size_t size = 0; size < image.bytes().size(); ++size) {
    EXPECT_FALSE(read_gguf_header(image.bytes().first(size)).is_ok()) << size;
  }
}

TEST(Gguf, WhatIsWrittenReadsBack) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  GgufMetadata keys;
  keys.add("general.architecture", std::string("test"));
  keys.add("a.count", uint64_t{7});
  keys.add("a.big", uint64_t{1} << 40);
  keys.add("a.negative", int64_t{-3});
  keys.add("a.ratio", 0.5);
  keys.add("a.flag", true);
  keys.add("a.ids", std::vector<int64_t>{5, -6});
  keys.add("a.scores", std::vector<double>{0.5, 2.0});
  keys.add("a.tokens", std::vector<std::string>{"x", "yz"});
  ASSERT_TRUE(keys.sort().is_ok());
  std::vector<GgufTensor> tensors = {
      {.name = "w", .dtype = DType::kU8, .block = GgufType::kQ6K, .shape = {3, 256}},
      {.name = "v", .dtype = DType::kBf16, .shape = {5}}};
  auto writer = GgufWriter::create(faults, directory / "x.gguf", keys, tensors);
  ASSERT_TRUE(writer.is_ok()) << writer.status().message();
  const std::vector<std::byte> ones(10, std::byte{1});
  ASSERT_TRUE(writer->write(1, 0, ones).is_ok());
  ASSERT_TRUE(writer->finish().is_ok());
  const std::vector<std::byte> file = directory.read("x.gguf");
  EXPECT_EQ(std::ssize(file), writer->file_bytes());
  const auto header = read_gguf_header(file);
  ASSERT_TRUE(header.is_ok()) << header.status().message();
  EXPECT_EQ(header->metadata.entries(), keys.entries());
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(3, 256));
  EXPECT_EQ(header->tensors[0].block, GgufType::kQ6K);
  EXPECT_EQ(header->tensors[1].dtype, DType::kBf16);
  EXPECT_EQ(file[static_cast<size_t>(header->data_start + header->tensors[1].begin)], std::byte{1});
}

}  // namespace
}  // namespace motley
