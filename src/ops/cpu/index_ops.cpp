#include <cmath>
#include <functional>
#include <limits>

#include "ops/cpu/cpu_ops.h"

namespace motley {
namespace {

// One task: some rows of a segment against some keys, which are widened once for all of them.
constexpr int64_t kTaskRows = 16;
constexpr int64_t kTaskKeys = 1024;

struct ScoreTask {
  const RowCacheSegment* segment = nullptr;
  int64_t first_row = 0;  // of the segment
  int64_t rows = 0;
  int64_t first_key = 0;
};

struct ScoreShape {
  int64_t heads;
  int64_t padded_heads;
  int64_t dim;
  int64_t padded_dim;
};

// Memory of one worker.
struct ScoreScratch {
  float* q;        // [padded_heads, padded_dim]
  float* weights;  // [padded_heads]
  float* keys;     // [a page rounded up to index_keys, padded_dim]
};

int64_t candidates(const IndexScoresArgs& args, const RowCacheSegment& segment, int64_t row) {
  return (segment.rows.first_position.value + row + 1) / args.tokens_per_key;
}

template <typename Use>
void for_each_score_task(const IndexScoresArgs& args, const Use& use) {
  for (const RowCacheSegment& segment : args.segments) {
    const int64_t page = segment.cache.layout.rows_per_page;
    const int64_t step = std::max<int64_t>(1, kTaskKeys / page) * page;
    for (int64_t row = 0; row < segment.rows.rows; row += kTaskRows) {
      const int64_t rows = std::min<int64_t>(kTaskRows, segment.rows.rows - row);
      const int64_t keys = candidates(args, segment, row + rows - 1);
      for (int64_t key = 0; key < keys; key += step) use(ScoreTask{&segment, row, rows, key});
    }
  }
}

void score_page(const CpuKernels& kernels, const IndexScoresArgs& args, const ScoreShape& shape,
                const ScoreTask& task, int64_t first, const ScoreScratch& scratch) {
  const RowCacheView& cache = task.segment->cache;
  const int64_t page = cache.layout.rows_per_page;
  const int64_t most = candidates(args, *task.segment, task.first_row + task.rows - 1);
  const int64_t held = std::min(page, most - first);
  const int64_t unit = kernels.index_keys;
  kernels.widen(cache.row(first), cache.layout.dtype == DType::kBf16, held, shape.dim,
                shape.padded_dim, scratch.keys);
  std::fill_n(scratch.keys + held * shape.padded_dim,
              ((held + unit - 1) / unit * unit - held) * shape.padded_dim, 0.0f);
  for (int64_t t = task.first_row; t < task.first_row + task.rows; ++t) {
    const int64_t count = std::min(page, candidates(args, *task.segment, t) - first);
    if (count <= 0) continue;
    const int64_t row = task.segment->rows.first_row + t;
    for (int64_t h = 0; h < shape.heads; ++h) {
      kernels.scale_padded(args.q.row<float>(row) + h * shape.dim, 1.0f, shape.dim,
                           shape.padded_dim, scratch.q + h * shape.padded_dim);
      scratch.weights[h] = args.weights.row<float>(row)[h] * args.scale;
    }
    kernels.index_scores({.q = scratch.q,
                          .weights = scratch.weights,
                          .heads = shape.padded_heads,
                          .keys = scratch.keys,
                          .count = count,
                          .padded_dim = shape.padded_dim,
                          .scores = args.scores.row<float>(row) + first});
  }
}

void check_scores(const IndexScoresArgs& args) {
  MOTLEY_CHECK(args.tokens_per_key > 0 && args.weights.cols() == args.q.shape[1],
               "a weight per head of an indexer");
  for (const RowCacheSegment& segment : args.segments) {
    const RowCacheView& cache = segment.cache;
    const int64_t keys = candidates(args, segment, segment.rows.rows - 1);
    MOTLEY_CHECK(cache.shard.is_whole(), "an indexer sees every key");
    MOTLEY_CHECK(cache.layout.width == args.q.shape[2] &&
                     (cache.layout.dtype == DType::kF32 || cache.layout.dtype == DType::kBf16),
                 "index keys are as wide as a head, in F32 or BF16");
    MOTLEY_CHECK(keys <= cache.length && keys <= args.scores.cols() &&
                     keys <= std::ssize(cache.pages) * cache.layout.rows_per_page,
                 "the cache holds every candidate, and the scores have room for it");
  }
}

// The `count` best of n scores, ascending by index; `sorted` holds room for n.
void choose_best(const float* scores, int64_t n, int64_t count, float* sorted, int32_t* chosen) {
  const float lowest = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) sorted[i] = std::isnan(scores[i]) ? lowest : scores[i];
  std::nth_element(sorted, sorted + count - 1, sorted + n, std::greater<>());
  const float last = sorted[count - 1];
  int64_t ties = count;
  for (int64_t i = 0; i < count; ++i) ties -= sorted[i] > last;
  for (int64_t i = 0; i < n; ++i) {
    const float score = std::isnan(scores[i]) ? lowest : scores[i];
    if (score > last || (score == last && ties-- > 0)) *chosen++ = static_cast<int32_t>(i);
  }
}

int32_t select_row(const IndexSelectArgs& args, int64_t row, float* sorted) {
  const int64_t top_k = args.chosen.cols();
  int32_t* chosen = args.chosen.row<int32_t>(row);
  const int32_t* forced = args.forced.is_empty() ? nullptr : args.forced.row<int32_t>(row);
  if (forced != nullptr && forced[0] >= 0) {
    const int32_t* end = std::find(forced, forced + top_k, -1);
    std::copy(forced, end, chosen);
    return static_cast<int32_t>(end - forced);
  }
  const int32_t n = *args.candidates.row<int32_t>(row);
  MOTLEY_CHECK(n >= 0 && n <= args.scores.cols(), "more candidates than scores");
  if (n > top_k) {
    choose_best(args.scores.row<float>(row), n, top_k, sorted, chosen);
    return static_cast<int32_t>(top_k);
  }
  for (int32_t i = 0; i < n; ++i) chosen[i] = i;
  return n;
}

}  // namespace

void cpu_layer_norm(const CpuKernels& kernels, Stream& stream, const ConstTensorView& x,
                    const ConstTensorView& weight, const ConstTensorView& bias, float epsilon,
                    const TensorView& y) {
  const int64_t dim = x.cols();
  MOTLEY_CHECK(x.rows() == y.rows() && y.cols() == dim && weight.shape.elements() == dim &&
                   bias.shape.elements() == dim,
               "one weight and bias per column");
  stream.threads().parallel_for(x.rows(), row_grain(4 * dim), [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      kernels.layer_norm(x.row<float>(r), weight.as<float>(), bias.as<float>(), dim, epsilon,
                         y.row<float>(r));
    }
  });
}

void cpu_index_scores(const CpuKernels& kernels, Stream& stream, const IndexScoresArgs& args) {
  check_scores(args);
  const auto round_up = [](int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; };
  const ScoreShape shape{args.q.shape[1], round_up(args.q.shape[1], kernels.attention_pairs),
                         args.q.shape[2], round_up(args.q.shape[2], kernels.lanes)};
  int64_t page = 0;
  for (const RowCacheSegment& segment : args.segments) {
    page = std::max<int64_t>(page, segment.cache.layout.rows_per_page);
  }
  int64_t count = 0;
  for_each_score_task(args, [&](const ScoreTask&) { ++count; });
  const Arena::Scope scope(stream.scratch());
  Arena& arena = stream.scratch();
  auto* tasks = arena.allocate<ScoreTask>(count);
  int64_t next = 0;
  for_each_score_task(args, [&](const ScoreTask& task) { tasks[next++] = task; });
  const int64_t workers = stream.threads().size();
  auto* scratch = arena.allocate<ScoreScratch>(workers);
  for (int64_t worker = 0; worker < workers; ++worker) {
    const int64_t queries = shape.padded_heads * shape.padded_dim;
    scratch[worker].q = arena.allocate<float>(queries);
    scratch[worker].weights = arena.allocate<float>(shape.padded_heads);
    scratch[worker].keys =
        arena.allocate<float>(round_up(page, kernels.index_keys) * shape.padded_dim);
    // Heads that only fill up the last tile.
    std::fill_n(scratch[worker].q, queries, 0.0f);
    std::fill_n(scratch[worker].weights, shape.padded_heads, 0.0f);
  }
  stream.threads().parallel_for(count, 1, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const ScoreTask& task = tasks[i];
      const int64_t rows_per_page = task.segment->cache.layout.rows_per_page;
      const int64_t most = candidates(args, *task.segment, task.first_row + task.rows - 1);
      const int64_t step = std::max<int64_t>(1, kTaskKeys / rows_per_page) * rows_per_page;
      const int64_t last = std::min(most, task.first_key + step);
      for (int64_t key = task.first_key; key < last; key += rows_per_page) {
        score_page(kernels, args, shape, task, key, scratch[worker]);
      }
    }
  });
}

void cpu_index_select(const CpuKernels&, Stream& stream, const IndexSelectArgs& args) {
  const int64_t rows = args.scores.rows();
  MOTLEY_CHECK(args.candidates.rows() == rows && args.chosen.rows() == rows &&
                   args.counts.rows() == rows && args.chosen.cols() > 0,
               "a list of chosen keys and its length for each row");
  const Arena::Scope scope(stream.scratch());
  const int64_t width = args.scores.cols();
  auto* sorted = stream.scratch().allocate<float>(width * stream.threads().size());
  stream.threads().parallel_for(
      rows, row_grain(8 * width), [&](int worker, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          *args.counts.row<int32_t>(r) = select_row(args, r, sorted + worker * width);
        }
      });
}

}  // namespace motley
