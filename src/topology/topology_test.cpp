#include "topology/topology.h"

#include <gtest/gtest.h>

#include <array>

#include "topology/collective.h"
#include "topology/loopback_link.h"

namespace motley {
namespace {

TopologyConfig four_ranks(int rank) {
  TopologyConfig config;
  config.ranks = 4;
  config.rank = rank;
  config.tensor_parallel = 2;
  config.decode_context_parallel = 4;
  config.backends = {"cpu", "cpu", "cpu", "cpu"};
  return config;
}

TEST(Topology, HashIsSharedByRanksAndCoversTheSettings) {
  const Topology first = Topology::create(four_ranks(0)).value();
  EXPECT_EQ(first.hash(), Topology::create(four_ranks(3)).value().hash());
  TopologyConfig other = four_ranks(0);
  other.cache_interleave = 64;
  EXPECT_NE(first.hash(), Topology::create(other).value().hash());
}

TEST(Topology, ContradictionsAreRefused) {
  TopologyConfig config = four_ranks(0);
  config.tensor_parallel = 3;
  EXPECT_EQ(Topology::create(config).status().message(),
            "topology: tensor_parallel must divide ranks");
  config = four_ranks(4);
  EXPECT_FALSE(Topology::create(config).is_ok());
  config = four_ranks(0);
  config.backends.pop_back();
  EXPECT_FALSE(Topology::create(config).is_ok());
}

// Every field that peers must agree about changes the hash, and `rank` alone does not.
TEST(Topology, EachSharedSettingIsHashed) {
  const auto hash_with = [](void (*change)(TopologyConfig&)) {
    TopologyConfig config = four_ranks(1);
    change(config);
    return Topology::create(config).value().hash();
  };
  const uint64_t base = hash_with([](TopologyConfig&) {});
  EXPECT_EQ(hash_with([](TopologyConfig& c) { c.rank = 2; }), base);
  EXPECT_NE(hash_with([](TopologyConfig& c) { c.tensor_parallel = 4; }), base);
  EXPECT_NE(hash_with([](TopologyConfig& c) { c.decode_context_parallel = 2; }), base);
  EXPECT_NE(hash_with([](TopologyConfig& c) { c.rails = {"rail0"}; }), base);
  EXPECT_NE(hash_with([](TopologyConfig& c) { c.backends[3] = "cuda"; }), base);
  EXPECT_NE(hash_with([](TopologyConfig& c) {
              c.ranks = 8;
              c.backends.assign(8, "cpu");
            }),
            base);
}

TEST(Topology, OrderAndBoundariesOfNamesAreHashed) {
  const auto hash_of = [](std::vector<std::string> rails) {
    TopologyConfig config = four_ranks(0);
    config.rails = std::move(rails);
    return Topology::create(config).value().hash();
  };
  EXPECT_NE(hash_of({"a", "b"}), hash_of({"b", "a"}));
  EXPECT_NE(hash_of({"ab"}), hash_of({"a", "b"}));
  EXPECT_NE(hash_of({"a;b"}), hash_of({"a", "b"}));
}

TEST(Topology, MessagesNameTheField) {
  const auto message = [](void (*change)(TopologyConfig&)) {
    TopologyConfig config = four_ranks(0);
    change(config);
    const auto topology = Topology::create(config);
    EXPECT_FALSE(topology.is_ok());
    EXPECT_EQ(topology.status().code(), StatusCode::kInvalidArgument);
    return topology.status().message();
  };
  EXPECT_EQ(message([](TopologyConfig& c) { c.ranks = 0; }),
            "topology: at least one rank is needed");
  EXPECT_EQ(message([](TopologyConfig& c) { c.ranks = -2; }),
            "topology: at least one rank is needed");
  EXPECT_EQ(message([](TopologyConfig& c) { c.rank = -1; }),
            "topology: rank is outside 0..ranks-1");
  EXPECT_EQ(message([](TopologyConfig& c) { c.tensor_parallel = 0; }),
            "topology: tensor_parallel must divide ranks");
  EXPECT_EQ(message([](TopologyConfig& c) { c.decode_context_parallel = 3; }),
            "topology: decode_context_parallel must divide ranks");
  EXPECT_EQ(message([](TopologyConfig& c) { c.cache_interleave = 0; }),
            "topology: cache_interleave must be positive");
  EXPECT_EQ(message([](TopologyConfig& c) { c.backends.emplace_back("cpu"); }),
            "topology: one backend per rank is needed");
}

TEST(Topology, OneRankIsTheDefaultConfiguration) {
  const Topology single = Topology::single();
  EXPECT_EQ(single.ranks(), 1);
  EXPECT_EQ(single.rank(), 0);
  EXPECT_EQ(single.hash(), Topology::create({}).value().hash());
  EXPECT_NE(single.hash(), Topology::single("cuda").hash());
}

TEST(SingleCollective, IsTheIdentity) {
  SingleCollective collective;
  std::array<float, 3> values = {1, 2, 3};
  ASSERT_TRUE(collective.all_reduce_sum(std::span<float>(values)).is_ok());
  EXPECT_EQ(values, (std::array<float, 3>{1, 2, 3}));
  std::array<double, 2> wide = {4, 5};
  ASSERT_TRUE(collective.all_reduce_sum(std::span<double>(wide)).is_ok());
  EXPECT_EQ(wide, (std::array<double, 2>{4, 5}));
  EXPECT_EQ(collective.ranks(), 1);
  EXPECT_TRUE(collective.barrier().is_ok());
  std::array<float, 3> out{};
  ASSERT_TRUE(
      collective
          .all_gather(std::as_bytes(std::span(values)), std::as_writable_bytes(std::span(out)))
          .is_ok());
  EXPECT_EQ(out, values);
}

TEST(LoopbackLink, KeepsOrderAndRefusesToInvent) {
  LoopbackLink link;
  const std::array<std::byte, 3> sent = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE(link.send(sent).is_ok());
  std::array<std::byte, 2> got{};
  ASSERT_TRUE(link.receive(got).is_ok());
  EXPECT_EQ(got[1], std::byte{2});
  EXPECT_EQ(link.receive(got).code(), StatusCode::kIo);
}

// A receive that fails takes nothing; messages join and split like bytes of a stream.
TEST(LoopbackLink, IsAStreamOfBytes) {
  LoopbackLink link;
  const std::array<std::byte, 1> one = {std::byte{7}};
  const std::array<std::byte, 2> two = {std::byte{8}, std::byte{9}};
  ASSERT_TRUE(link.send(one).is_ok());
  std::array<std::byte, 3> all{};
  EXPECT_EQ(link.receive(all).message(), "loopback link: 3 bytes wanted, 1 sent");
  ASSERT_TRUE(link.send(two).is_ok());
  ASSERT_TRUE(link.receive(all).is_ok());
  EXPECT_EQ(all, (std::array<std::byte, 3>{std::byte{7}, std::byte{8}, std::byte{9}}));
  EXPECT_TRUE(link.receive({}).is_ok());
}

TEST(SingleCollectiveDeathTest, APieceOfAnotherSizeIsABug) {
  SingleCollective collective;
  std::array<std::byte, 2> in{};
  std::array<std::byte, 3> out{};
  EXPECT_DEATH((void)collective.all_gather(in, out), "gathers its own piece");
}

}  // namespace
}  // namespace motley
