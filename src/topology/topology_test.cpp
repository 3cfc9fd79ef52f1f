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

TEST(SingleCollective, IsTheIdentity) {
  SingleCollective collective;
  std::array<float, 3> values = {1, 2, 3};
  ASSERT_TRUE(collective.all_reduce_sum(std::span<float>(values)).is_ok());
  EXPECT_EQ(values, (std::array<float, 3>{1, 2, 3}));
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

}  // namespace
}  // namespace motley
