// Files of known bytes and backends that misbehave, for the tests of streaming (here and in
// experts/). Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "io/stream/direct_file.h"
#include "io/stream/read_backend.h"
#include "support/test_files.h"

namespace motley {

inline std::string random_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Aborts the test when the file cannot be opened.
inline DirectFile open_for_test(FaultPoints& faults, const std::string& path,
                                CacheUse use = CacheUse::kBypass) {
  const auto file = File::open(faults, path);
  auto direct = DirectFile::open(faults, file.value(), use);
  return std::move(direct).value();
}

inline std::vector<int> descriptors_of(const std::vector<DirectFile>& files) {
  std::vector<int> descriptors;
  for (const DirectFile& file : files) descriptors.push_back(file.descriptor());
  return descriptors;
}

inline std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// False where this machine forbids io_uring.
inline bool has_uring() {
  return open_uring_backend({}, 1).is_ok();
}

// Delivers what an inner backend read, late, in another order, and some of it damaged.
struct Unreliability {
  uint64_t seed = 1;
  double errors = 0;       // share of reads that report EIO, EAGAIN or EINTR
  double short_reads = 0;  // share that report fewer bytes
  int delay_us = 0;        // for every read: they come one by one
};
class UnreliableBackend final : public ReadBackend {
 public:
  UnreliableBackend(std::unique_ptr<ReadBackend> inner, Unreliability unreliability)
      : inner_(std::move(inner)), unreliability_(unreliability), random_(unreliability.seed) {}

  std::string_view name() const override { return inner_->name(); }
  Status register_buffers(std::span<const std::span<std::byte>> buffers) override {
    return inner_->register_buffers(buffers);
  }
  void submit(const RawRead& read) override { inner_->submit(read); }
  void flush() override { inner_->flush(); }

  void wait(std::vector<RawCompletion>* completions, int min_count) override {
    const size_t before = held_.size();
    inner_->wait(&held_, std::max(0, min_count - static_cast<int>(before)));
    for (size_t i = before; i < held_.size(); ++i) damage(held_[i]);
    std::shuffle(held_.begin(), held_.end(), random_);
    const size_t least = std::min(static_cast<size_t>(min_count), held_.size());
    size_t count = std::uniform_int_distribution<size_t>(least, held_.size())(random_);
    if (unreliability_.delay_us > 0 && !held_.empty()) {
      std::this_thread::sleep_for(std::chrono::microseconds(unreliability_.delay_us));
      count = 1;
    }
    const auto split = held_.end() - static_cast<std::ptrdiff_t>(count);
    completions->insert(completions->end(), split, held_.end());
    held_.erase(split, held_.end());
  }

 private:
  void damage(RawCompletion& completion) {
    const double draw = std::uniform_real_distribution<double>(0, 1)(random_);
    if (draw < unreliability_.errors) {
      constexpr int kErrors[] = {EIO, EAGAIN, EINTR};
      completion.result = -kErrors[random_() % 3];
    } else if (draw < unreliability_.errors + unreliability_.short_reads) {
      completion.result /= 2;
    }
  }

  std::unique_ptr<ReadBackend> inner_;
  const Unreliability unreliability_;
  std::mt19937_64 random_;
  std::vector<RawCompletion> held_;
};

// Reads nothing by itself: the test sees what was started and says what arrives, and how.
class ManualBackend final : public ReadBackend {
 public:
  std::string_view name() const override { return "manual"; }
  Status register_buffers(std::span<const std::span<std::byte>>) override { return Status::ok(); }
  void submit(const RawRead& read) override { started.push_back(read); }
  void flush() override {}
  void wait(std::vector<RawCompletion>* completions, int min_count) override {
    MOTLEY_CHECK(min_count <= static_cast<int>(arrived_.size()), "this wait would never end");
    completions->insert(completions->end(), arrived_.begin(), arrived_.end());
    arrived_.clear();
  }

  // The oldest started read arrives with `fill` in its buffer.
  void arrive(char fill = 'x') { arrive_at(0, fill); }
  void arrive_at(size_t index, char fill = 'x') {
    const RawRead read = take(index);
    std::memset(read.into.data(), fill, read.into.size());
    arrived_.push_back({read.id, static_cast<int64_t>(read.into.size())});
  }
  void fail(int error_number) { arrived_.push_back({take(0).id, -error_number}); }

  std::vector<RawRead> started;  // and not yet arrived

 private:
  RawRead take(size_t index) {
    const RawRead read = started.at(index);
    started.erase(started.begin() + static_cast<std::ptrdiff_t>(index));
    return read;
  }

  std::vector<RawCompletion> arrived_;
};

}  // namespace motley
