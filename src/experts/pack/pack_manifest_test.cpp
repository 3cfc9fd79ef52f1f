#include "experts/pack/pack_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace motley {
namespace {

using testing::HasSubstr;

PackManifest example(int parts = 1, int part = 0) {
  return {.source = {.files = {{"model-00001-of-00002.safetensors", 4'244'021'376, 1},
                               {"b \"quoted\".safetensors", 0, ~uint64_t{0}}},
                     .sample_hash = 0xFEDCBA9876543210},
          .parts = parts,
          .part = part,
          .layers = {{0, 17, 8192, 4096}, {2, 64, 12288, 8192}, {40, 16, 4096, 4096}}};
}

TEST(PackManifest, ComesBackFromItsText) {
  for (const PackManifest& manifest : {example(), example(3, 2), example(16, 0)}) {
    const auto parsed = parse_pack_manifest(format_pack_manifest(manifest), "m");
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
    EXPECT_EQ(*parsed, manifest);
  }
}

TEST(PackManifest, EveryExpertIsInOnePartAtOnePlace) {
  for (const int parts : {1, 2, 3, 5, 16}) {
    int64_t records = 0;
    int64_t bytes = 0;
    std::set<std::pair<int, int>> seen;
    for (int part = 0; part < parts; ++part) {
      const PackManifest manifest = example(parts, part);
      records += manifest.records();
      bytes += manifest.bytes();
      for (size_t i = 0; i < manifest.layers.size(); ++i) {
        const int layer = manifest.layers[i].layer;
        for (int64_t at = 0; at < manifest.records_of(i); ++at) {
          const int expert = expert_at(parts, part, layer, at);
          EXPECT_EQ(part_of_expert(parts, layer, expert), part);
          EXPECT_EQ(position_in_part(parts, expert), at);
          EXPECT_LT(expert, manifest.layers[i].experts);
          EXPECT_TRUE(seen.emplace(layer, expert).second);
        }
      }
    }
    EXPECT_EQ(records, 17 + 64 + 16);
    EXPECT_EQ(bytes, example().bytes());
  }
}

TEST(PackManifest, RefusesWhatIsNone) {
  const auto error = [](std::string_view from, std::string_view to) {
    std::string text = format_pack_manifest(example());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return parse_pack_manifest(text, "dir/motley-pack.json").status().message();
  };
  EXPECT_THAT(error("pack 1", "pack 2"), HasSubstr("must be 'motley pack 1'"));
  EXPECT_THAT(error("\"part\": 0", "\"part\": 1"), HasSubstr("part"));
  EXPECT_THAT(error("\"parts\": 1", "\"parts\": 17"), HasSubstr("parts"));
  EXPECT_THAT(error("fedcba9876543210", "fedcba987654321"), HasSubstr("16 hexadecimal digits"));
  EXPECT_THAT(error("fedcba9876543210", "fedcba987654321g"), HasSubstr("16 hexadecimal digits"));
  EXPECT_THAT(error("8192", "8193"), HasSubstr("multiple of 4096"));
  EXPECT_THAT(error("8192", "0"), HasSubstr("layers[0].gate_up_bytes"));
  EXPECT_THAT(error("8192", "99999999999999"), HasSubstr("gate_up_bytes"));
  EXPECT_THAT(error("\"layer\": 2", "\"layer\": 0"), HasSubstr("layers[1].layer"));
  EXPECT_THAT(error("\"experts\": 17", "\"experts\": -1"), HasSubstr("experts"));
  EXPECT_THAT(error("\"layers\"", "\"sayers\""), HasSubstr("layers"));
  EXPECT_THAT(error("{", "["), HasSubstr("dir/motley-pack.json"));
  EXPECT_FALSE(parse_pack_manifest("", "m").is_ok());
}

TEST(PackTable, AnEntryIsForItsPlaceAlone) {
  const PackManifest manifest = example(2, 1);
  const auto records = static_cast<size_t>(manifest.records());
  std::vector<std::byte> table;
  for (size_t i = 0; i < records; ++i) {
    const auto entry = pack_table_entry(manifest, static_cast<int64_t>(i), {i, i * i});
    ASSERT_EQ(std::ssize(entry), kPackEntryBytes);
    table.insert(table.end(), entry.begin(), entry.end());
  }
  const auto entries = parse_pack_table(manifest, table);
  for (size_t i = 0; i < records; ++i) EXPECT_EQ(entries[i], (RecordSums{i, i * i}));

  PackManifest other = manifest;
  ++other.source.sample_hash;
  for (const auto& entry : parse_pack_table(other, table)) EXPECT_FALSE(entry.has_value());
  // Shifted by one record, every entry is at another's place.
  const auto shifted = parse_pack_table(manifest, std::span(table).subspan(kPackEntryBytes));
  for (const auto& entry : shifted) EXPECT_FALSE(entry.has_value());
}

TEST(PackTable, WhatIsDamagedOrMissingIsNoEntry) {
  const PackManifest manifest = example();
  std::vector<std::byte> table;
  for (int64_t i = 0; i < manifest.records(); ++i) {
    const auto entry = pack_table_entry(manifest, i, {7, 9});
    table.insert(table.end(), entry.begin(), entry.end());
  }
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> damaged = table;
    const size_t at = random() % damaged.size();
    damaged[at] ^= static_cast<std::byte>(1 << random() % 8);
    const auto entries = parse_pack_table(manifest, damaged);
    for (size_t i = 0; i < entries.size(); ++i) {
      EXPECT_EQ(entries[i].has_value(), i != at / kPackEntryBytes);
    }
  }
  table.resize(5 * kPackEntryBytes + 3);
  const auto entries = parse_pack_table(manifest, table);
  EXPECT_TRUE(entries[4].has_value());
  EXPECT_FALSE(entries[5].has_value());
  EXPECT_EQ(std::ssize(entries), manifest.records());
  EXPECT_FALSE(parse_pack_table(manifest, std::vector<std::byte>(99))[0].has_value());
}

}  // namespace
}  // namespace motley
