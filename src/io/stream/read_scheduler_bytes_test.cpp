// Whatever the drive does, what is reported as read holds the file's bytes.
#include <gmock/gmock.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "io/stream/read_backend_test_util.h"
#include "io/stream/read_scheduler.h"

namespace motley {
namespace {

struct Wanted {
  int file = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// One request with its own buffers.
struct Request {
  std::vector<Wanted> wanted;
  std::vector<AlignedBuffer> buffers;
  std::vector<ReadRange> ranges;
};

constexpr char kUntouched = 0x5A;

// Odd-sized files, a scheduler over them and the bytes that must come out.
class Bench {
 public:
  Bench(std::vector<size_t> sizes, const ReadSchedulerOptions& options,
        std::optional<Unreliability> unreliability, CacheUse use = CacheUse::kBypass) {
    std::vector<DirectFile> files;
    for (size_t i = 0; i < sizes.size(); ++i) {
      contents_.push_back(random_bytes(sizes[i], i));
      directory_.write(std::to_string(i), contents_.back());
      files.push_back(open_for_test(faults_, directory_ / std::to_string(i), use));
    }
    auto opened = open_read_backend(
        descriptors_of(files), {.kind = options.backend, .capacity = options.depth, .threads = 4});
    if (unreliability) {
      opened->backend =
          std::make_unique<UnreliableBackend>(std::move(opened->backend), *unreliability);
    }
    scheduler_ = std::make_unique<ReadScheduler>(clock_, faults_, std::move(files),
                                                 std::move(*opened), options);
  }

  void submit(uint64_t tag, ReadPriority priority, std::vector<Wanted> wanted) {
    Request request{std::move(wanted), {}, {}};
    for (const Wanted& one : request.wanted) {
      const FileRange range =
          scheduler_->files()[static_cast<size_t>(one.file)].aligned_range(one.offset, one.bytes);
      auto buffer = AlignedBuffer::allocate(static_cast<size_t>(range.bytes));
      request.ranges.push_back({one.file, range.offset, buffer->bytes()});
      request.buffers.push_back(std::move(*buffer));
    }
    scheduler_->submit(tag, priority, request.ranges);
    requests_[tag] = std::move(request);
  }

  bool has_right_bytes(uint64_t tag) const {
    const Request& request = requests_.at(tag);
    for (size_t i = 0; i < request.wanted.size(); ++i) {
      const Wanted& one = request.wanted[i];
      const std::string& content = contents_[static_cast<size_t>(one.file)];
      const std::byte* read = request.buffers[i].data() + (one.offset - request.ranges[i].offset);
      if (std::memcmp(read, content.data() + one.offset, static_cast<size_t>(one.bytes)) != 0) {
        return false;
      }
    }
    return true;
  }

  // The buffers are the test's again: a later write to them would be seen.
  void mark_untouched(uint64_t tag) {
    for (AlignedBuffer& buffer : requests_.at(tag).buffers) {
      std::memset(buffer.data(), kUntouched, buffer.size());
    }
  }
  bool is_untouched(uint64_t tag) const {
    return std::all_of(requests_.at(tag).buffers.begin(), requests_.at(tag).buffers.end(),
                       [](const AlignedBuffer& buffer) {
                         const auto bytes = buffer.bytes();
                         return std::all_of(bytes.begin(), bytes.end(), [](std::byte one) {
                           return one == std::byte{kUntouched};
                         });
                       });
  }

  ReadScheduler& scheduler() { return *scheduler_; }
  FaultPoints& faults() { return faults_; }

 private:
  TemporaryDirectory directory_;
  FaultPoints faults_;
  SteadyClock clock_;
  std::vector<std::string> contents_;
  std::map<uint64_t, Request> requests_;
  std::unique_ptr<ReadScheduler> scheduler_;  // its end comes before that of the buffers
};

std::vector<ReadBackendKind> kinds_here() {
  if (!has_uring()) return {ReadBackendKind::kPread};
  return {ReadBackendKind::kPread, ReadBackendKind::kUring};
}

std::vector<Wanted> any_ranges(const std::vector<size_t>& sizes) {
  std::vector<Wanted> wanted;
  for (int i = *rc::gen::inRange(1, 4); i > 0; --i) {
    const int file = *rc::gen::inRange(0, static_cast<int>(sizes.size()));
    const auto size = static_cast<int64_t>(sizes[static_cast<size_t>(file)]);
    const int64_t offset = *rc::gen::inRange<int64_t>(0, size);
    wanted.push_back({file, offset, *rc::gen::inRange<int64_t>(1, size - offset + 1)});
  }
  return wanted;
}

RC_GTEST_PROP(ReadSchedulerBytes, AreTheFilesInAnyOrderUnderErrorsAndCancels, ()) {
  const std::vector<size_t> sizes = {*rc::gen::inRange<size_t>(1, 100'000),
                                     *rc::gen::inRange<size_t>(1, 9'000)};
  const bool damage = *rc::gen::arbitrary<bool>();
  const Unreliability unreliability = {.seed = *rc::gen::arbitrary<uint64_t>(),
                                       .errors = damage ? 0.2 : 0,
                                       .short_reads = damage ? 0.2 : 0};
  const ReadSchedulerOptions options = {
      .depth = *rc::gen::inRange(1, 33),
      .max_read_bytes = *rc::gen::elementOf(std::vector<int64_t>{4096, 16384, 1 << 22}),
      .backend = *rc::gen::elementOf(kinds_here())};
  Bench bench(sizes, options, unreliability,
              *rc::gen::element(CacheUse::kBypass, CacheUse::kBuffered));
  const uint64_t count = *rc::gen::inRange<uint64_t>(1, 30);
  uint64_t completed = 0;
  std::vector<uint64_t> cancelled;
  const auto take = [&](const std::vector<ReadCompletion>& completions) {
    completed += completions.size();
    for (const ReadCompletion& one : completions) {
      if (one.status.code() == StatusCode::kCancelled) {
        bench.mark_untouched(one.tag);
        cancelled.push_back(one.tag);
      } else {
        RC_ASSERT(one.status.is_ok());
        RC_ASSERT(bench.has_right_bytes(one.tag));
      }
    }
  };
  for (uint64_t tag = 0; tag < count; ++tag) {
    bench.submit(tag, static_cast<ReadPriority>(*rc::gen::inRange(0, kReadPriorities)),
                 any_ranges(sizes));
    if (*rc::gen::inRange(0, 4) == 0) {
      bench.scheduler().cancel(*rc::gen::inRange<uint64_t>(0, tag + 1));
    }
    if (*rc::gen::inRange(0, 3) == 0) take(bench.scheduler().poll());
  }
  while (completed < count) take(bench.scheduler().wait());
  RC_ASSERT(bench.scheduler().is_idle());
  for (const uint64_t tag : cancelled) RC_ASSERT(bench.is_untouched(tag));
}

class ReadSchedulerDepth : public ::testing::TestWithParam<ReadBackendKind> {};

TEST_P(ReadSchedulerDepth, AnyDepthReadsTheWholeFileAndLeaksNothing) {
  if (GetParam() == ReadBackendKind::kUring && !has_uring()) GTEST_SKIP() << "no io_uring here";
  constexpr size_t kBytes = 300'001;
  const std::ptrdiff_t before = open_descriptors();
  for (int depth = 1; depth <= 32; ++depth) {
    Bench bench({kBytes}, {.depth = depth, .max_read_bytes = 4096, .backend = GetParam()}, {});
    bench.submit(1, ReadPriority::kSweep, {{0, 0, kBytes}});
    const auto completions = bench.scheduler().wait();
    ASSERT_EQ(completions.size(), 1u);
    ASSERT_TRUE(completions[0].status.is_ok()) << completions[0].status.message();
    ASSERT_TRUE(bench.has_right_bytes(1)) << depth;
    EXPECT_EQ(bench.scheduler().stats().total_bytes(), int64_t{kBytes});
    EXPECT_EQ(bench.scheduler().stats().of(ReadPriority::kSweep).retries, 0);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_P(ReadSchedulerDepth, AFailedRequestLeavesTheOthersAlone) {
  if (GetParam() == ReadBackendKind::kUring && !has_uring()) GTEST_SKIP() << "no io_uring here";
  Bench bench({50'000}, {.depth = 4, .backend = GetParam()}, {});
  bench.faults().arm("io.stream.read", 3, io_error("x"));
  bench.faults().arm("io.stream.retry", 1, io_error("x"));
  for (uint64_t tag = 0; tag < 10; ++tag) {
    bench.submit(tag, ReadPriority::kDemandGateUp, {{0, static_cast<int64_t>(tag) * 5000, 5000}});
  }
  int failed = 0;
  for (size_t done = 0; done < 10;) {
    const auto completions = bench.scheduler().wait();
    done += completions.size();
    for (const ReadCompletion& one : completions) {
      if (one.status.is_ok()) {
        EXPECT_TRUE(bench.has_right_bytes(one.tag));
      } else {
        ++failed;
        EXPECT_THAT(one.status.message(), ::testing::HasSubstr("/0: cannot read"));
      }
    }
  }
  EXPECT_EQ(failed, 1);
}

INSTANTIATE_TEST_SUITE_P(Both, ReadSchedulerDepth,
                         ::testing::Values(ReadBackendKind::kUring, ReadBackendKind::kPread),
                         [](const auto& kind) {
                           return kind.param == ReadBackendKind::kUring ? "uring" : "pread";
                         });

TEST(ReadScheduler, OpensWithABackendOfItsOwn) {
  const TemporaryDirectory directory;
  FaultPoints faults;
  const SteadyClock clock;
  directory.write("a", random_bytes(10'000, 1));
  std::vector<DirectFile> files;
  files.push_back(open_for_test(faults, directory / "a"));
  files.push_back(open_for_test(faults, directory / "a"));
  const auto scheduler = ReadScheduler::open(clock, faults, std::move(files), {});
  ASSERT_TRUE(scheduler.is_ok());
  EXPECT_EQ((*scheduler)->drive_count(), 1);
  EXPECT_EQ((*scheduler)->drive_of(1), 0);
  EXPECT_EQ((*scheduler)->backend_name() == "io_uring", (*scheduler)->backend_reason().empty());
}

}  // namespace
}  // namespace motley
