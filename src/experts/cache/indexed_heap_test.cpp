#include "experts/cache/indexed_heap.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace motley {
namespace {

TEST(IndexedHeap, TheLowestIsOnTopAndTiesGoToTheLowerId) {
  IndexedHeap heap(4);
  EXPECT_TRUE(heap.empty());
  heap.set(2, {1, 5});
  heap.set(3, {1, 5});
  heap.set(1, {1, 4});
  EXPECT_EQ(heap.top(), 1);
  heap.set(1, {7, 0});
  EXPECT_EQ(heap.top(), 2);
  heap.remove(2);
  heap.remove(2);
  EXPECT_EQ(heap.top(), 3);
  EXPECT_EQ(heap.size(), 2);
  EXPECT_FALSE(heap.contains(2));
}

RC_GTEST_PROP(IndexedHeapProperty, AgreesWithAMap, ()) {
  constexpr int kIds = 20;
  IndexedHeap heap(kIds);
  std::map<int, EvictionKey> model;
  for (int i = 0; i < 200; ++i) {
    const int id = *rc::gen::inRange(0, kIds);
    if (*rc::gen::inRange(0, 3) == 0) {
      heap.remove(id);
      model.erase(id);
    } else {
      const EvictionKey key{static_cast<double>(*rc::gen::inRange(0, 5)), *rc::gen::inRange(0, 3)};
      heap.set(id, key);
      model[id] = key;
    }
    RC_ASSERT(heap.size() == static_cast<int>(model.size()));
    RC_ASSERT(heap.contains(id) == (model.count(id) > 0));
    if (model.empty()) continue;
    auto lowest = model.begin();
    for (auto it = model.begin(); it != model.end(); ++it) {
      if (it->second < lowest->second) lowest = it;
    }
    RC_ASSERT(heap.top() == lowest->first);
    RC_ASSERT(heap.top_key() == lowest->second);
  }
}

}  // namespace
}  // namespace motley
