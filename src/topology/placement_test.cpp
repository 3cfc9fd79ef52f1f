#include "topology/placement.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

Placement ledger() {
  Placement placement;
  placement.rows = {
      {.name = "embedding",
       .part = "embedding",
       .format = "bf16",
       .elements = 100,
       .file_bytes = 200,
       .memory_bytes = 200},
      {.name = "layers.0.norm",
       .part = "norm",
       .format = "f32",
       .elements = 10,
       .file_bytes = 20,
       .memory_bytes = 40,
       .where = PlacementKind::kCopied},
      {.name = "head", .part = "head", .format = "bf16", .where = PlacementKind::kTied},
      {.name = "layers.1.norm",
       .part = "norm",
       .format = "f32",
       .elements = 10,
       .file_bytes = 20,
       .memory_bytes = 40,
       .where = PlacementKind::kCopied},
      {.name = "visual.patch",
       .part = "skipped",
       .format = "bf16",
       .elements = 7,
       .file_bytes = 14,
       .where = PlacementKind::kSkipped,
       .reason = "vision tower"},
  };
  return placement;
}

std::vector<std::string> keys(const std::vector<PlacementTotal>& totals) {
  std::vector<std::string> result;
  for (const PlacementTotal& total : totals) result.push_back(total.key);
  return result;
}

TEST(Placement, GroupsInOrderOfFirstAppearance) {
  EXPECT_EQ(keys(ledger().by_part()),
            (std::vector<std::string>{"embedding", "norm", "head", "skipped"}));
  EXPECT_EQ(keys(ledger().by_format()), (std::vector<std::string>{"bf16", "f32"}));
  EXPECT_EQ(keys(ledger().by_kind()),
            (std::vector<std::string>{"mapped", "copied", "tied", "skipped"}));
}

TEST(Placement, RowsOfAGroupAddUp) {
  const PlacementTotal norms = ledger().by_part()[1];
  EXPECT_EQ(norms.tensors, 2);
  EXPECT_EQ(norms.elements, 20);
  EXPECT_EQ(norms.file_bytes, 40);
  EXPECT_EQ(norms.memory_bytes, 80);
}

TEST(Placement, EveryGroupingAddsUpToTheTotal) {
  const Placement placement = ledger();
  const PlacementTotal total = placement.total();
  EXPECT_EQ(total.tensors, 5);
  EXPECT_EQ(total.elements, 127);
  EXPECT_EQ(total.file_bytes, 254);
  EXPECT_EQ(total.memory_bytes, 280);
  for (const auto& groups : {placement.by_part(), placement.by_format(), placement.by_kind()}) {
    PlacementTotal sum;
    for (const PlacementTotal& group : groups) {
      sum.tensors += group.tensors;
      sum.elements += group.elements;
      sum.file_bytes += group.file_bytes;
      sum.memory_bytes += group.memory_bytes;
    }
    EXPECT_EQ(sum.tensors, total.tensors);
    EXPECT_EQ(sum.elements, total.elements);
    EXPECT_EQ(sum.file_bytes, total.file_bytes);
    EXPECT_EQ(sum.memory_bytes, total.memory_bytes);
  }
}

TEST(Placement, AnEmptyLedgerIsZero) {
  EXPECT_TRUE(Placement{}.by_part().empty());
  EXPECT_EQ(Placement{}.total().tensors, 0);
  EXPECT_EQ(Placement{}.total().key, "total");
}

}  // namespace
}  // namespace motley
