#include "experts/cache/eviction_policy.h"

namespace motley {
namespace {

class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(const CacheShape& shape) : shape_(shape), last_(shape.size(), 0) {}

  std::string_view name() const override { return "LRU"; }
  void step(int layer, std::span<const int32_t> wanted, std::span<const uint8_t>) override {
    ++now_;
    for (const int32_t expert : wanted) last_[shape_.index(layer, expert)] = now_;
  }
  void record(int, std::span<const int32_t>) override {}
  EvictionKey key(int layer, int expert) const override {
    return {static_cast<double>(last_[shape_.index(layer, expert)]), 0};
  }

 private:
  CacheShape shape_;
  int64_t now_ = 0;
  std::vector<int64_t> last_;
};

class LfuPolicy final : public EvictionPolicy {
 public:
  explicit LfuPolicy(const CacheShape& shape)
      : shape_(shape), count_(shape.size(), 0), last_(shape.size(), 0) {}

  std::string_view name() const override { return "LFU"; }
  void step(int layer, std::span<const int32_t> wanted, std::span<const uint8_t>) override {
    record(layer, wanted);
  }
  void record(int layer, std::span<const int32_t> wanted) override {
    ++now_;
    for (const int32_t expert : wanted) {
      const size_t index = shape_.index(layer, expert);
      ++count_[index];
      last_[index] = now_;
    }
  }
  EvictionKey key(int layer, int expert) const override {
    const size_t index = shape_.index(layer, expert);
    return {static_cast<double>(count_[index]), last_[index]};
  }

 private:
  CacheShape shape_;
  int64_t now_ = 0;
  std::vector<int64_t> count_;
  std::vector<int64_t> last_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru_policy(const CacheShape& shape) {
  return std::make_unique<LruPolicy>(shape);
}

std::unique_ptr<EvictionPolicy> make_lfu_policy(const CacheShape& shape) {
  return std::make_unique<LfuPolicy>(shape);
}

}  // namespace motley
