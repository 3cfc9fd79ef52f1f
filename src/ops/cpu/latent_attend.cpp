// Attention over latent rows: shares the product among threads, and gathers chosen keys.
//
// A tile is one row that has a selection, or some rows that see every key, times some of the heads.
// A row's keys, in ascending position, are cut into spans of kSpanKeys; each span is summed by the
// kernel of ops/attention.h (the latent is both key and value) and spans are joined in order. A
// selection of all keys is the same list as no selection, and gives the same bits.
#include <limits>

#include "ops/cpu/cpu_ops.h"

namespace motley {
namespace {

constexpr int64_t kSpanKeys = 512;
constexpr int64_t kPageKeys = 64;  // of gathered keys
constexpr int64_t kMostQueries = 128;
constexpr int64_t kFewestQueries = 4;

struct Tile {
  const RowCacheSegment* segment = nullptr;
  int64_t first_row = 0;  // of the batch
  int64_t rows = 0;
  int64_t first_head = 0;
  int64_t heads = 0;
  int32_t count = kEveryKey;  // of the row's selection
};

struct Problem {
  const CpuKernels& kernels;
  const LatentAttentionArgs& args;
  int64_t width;         // of a cache row
  int64_t padded_width;  // to whole vectors
  int64_t heads_per_tile = 1;
  int64_t rows_per_tile = 1;
  int64_t most_page_rows = kPageKeys;

  int64_t padded_pairs() const {
    const int64_t unit = kernels.attention_pairs;
    return (rows_per_tile * heads_per_tile + unit - 1) / unit * unit;
  }
};

// Sums of some keys for the queries of a tile.
struct Sums {
  float* highest;  // [pairs]
  float* sum;      // [pairs]
  float* acc;      // [pairs, padded_width]
};

// Memory of one worker.
struct Scratch {
  float* q;  // [pairs, padded_width]
  int64_t* visible;
  Sums span;
  Sums total;
  float* kernel;
  std::byte* gathered;         // [kSpanKeys, width]
  std::byte** gathered_pages;  // [kSpanKeys / kPageKeys]
};

Sums allocate_sums(Arena& arena, int64_t pairs, int64_t padded_width) {
  return {arena.allocate<float>(pairs), arena.allocate<float>(pairs),
          arena.allocate<float>(pairs * padded_width)};
}

Scratch allocate_scratch(Arena& arena, const Problem& problem) {
  const int64_t pairs = problem.padded_pairs();
  Scratch scratch;
  scratch.q = arena.allocate<float>(pairs * problem.padded_width);
  scratch.visible = arena.allocate<int64_t>(pairs);
  scratch.span = allocate_sums(arena, pairs, problem.padded_width);
  scratch.total = allocate_sums(arena, pairs, problem.padded_width);
  scratch.kernel = arena.allocate<float>(
      problem.kernels.attention_scratch(pairs, problem.padded_width, problem.most_page_rows));
  const int64_t row_bytes = problem.width * dtype_bytes(DType::kF32);
  scratch.gathered =
      static_cast<std::byte*>(arena.allocate_bytes(static_cast<size_t>(kSpanKeys * row_bytes)));
  scratch.gathered_pages = arena.allocate<std::byte*>(kSpanKeys / kPageKeys);
  return scratch;
}

int64_t position_of(const Tile& tile, int64_t row) {
  const RowSegment& rows = tile.segment->rows;
  return rows.first_position.value + tile.first_row + row - rows.first_row;
}

AttentionTask tile_task(const Problem& problem, const Tile& tile, const Scratch& scratch) {
  const RowCacheLayout& layout = tile.segment->cache.layout;
  const int64_t pairs = tile.rows * tile.heads;
  const int64_t unit = problem.kernels.attention_pairs;
  AttentionTask task;
  task.pairs = (pairs + unit - 1) / unit * unit;
  for (int64_t pair = 0; pair < task.pairs; ++pair) {
    // Queries that only fill up the last block repeat the last one.
    const int64_t source = std::min(pair, pairs - 1);
    const float* q = problem.args.q.row<float>(tile.first_row + source / tile.heads) +
                     (tile.first_head + source % tile.heads) * problem.width;
    problem.kernels.scale_padded(q, problem.args.scale, problem.width, problem.padded_width,
                                 scratch.q + pair * problem.padded_width);
  }
  const int64_t lanes = problem.kernels.lanes;
  task.q = scratch.q;
  task.visible = scratch.visible;
  task.is_bf16 = layout.dtype == DType::kBf16;
  task.dim = problem.width;
  task.padded_dim = problem.padded_width;
  task.value_dim = (problem.args.rank + lanes - 1) / lanes * lanes;
  task.highest = scratch.span.highest;
  task.sum = scratch.span.sum;
  task.acc = scratch.span.acc;
  task.scratch = scratch.kernel;
  return task;
}

void clear(const Sums& total, int64_t pairs, int64_t padded_width) {
  std::fill_n(total.highest, pairs, -std::numeric_limits<float>::infinity());
  std::fill_n(total.sum, pairs, 0.0f);
  std::fill_n(total.acc, pairs * padded_width, 0.0f);
}

void join(const Problem& problem, int64_t pairs, const Sums& from, const Sums& into) {
  const int64_t width = problem.padded_width;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    problem.kernels.attention_join(from.acc + pair * width, from.highest[pair], from.sum[pair],
                                   problem.args.rank, into.acc + pair * width, into.highest + pair,
                                   into.sum + pair);
  }
}

void finish(const Problem& problem, const Tile& tile, const Sums& total) {
  const PartialAttention& result = problem.args.result;
  for (int64_t pair = 0; pair < tile.rows * tile.heads; ++pair) {
    const int64_t row = tile.first_row + pair / tile.heads;
    const int64_t head = tile.first_head + pair % tile.heads;
    problem.kernels.attention_finish(total.acc + pair * problem.padded_width, total.highest[pair],
                                     total.sum[pair], problem.args.rank,
                                     result.out.row<float>(row) + head * problem.args.rank,
                                     result.lse.values.row<float>(row) + head);
  }
}

// Rows that see every key read the pages where they lie.
void run_every_key(const Problem& problem, const Tile& tile, const Scratch& scratch,
                   AttentionTask task) {
  const RowCacheView& cache = tile.segment->cache;
  const int64_t pairs = tile.rows * tile.heads;
  int64_t most = 0;
  for (int64_t pair = 0; pair < task.pairs; ++pair) {
    const int64_t row = std::min(pair, pairs - 1) / tile.heads;
    scratch.visible[pair] = cache.shard.tokens_below(position_of(tile, row) + 1);
    most = std::max(most, scratch.visible[pair]);
  }
  task.pages = cache.pages.data();
  task.tokens_per_page = cache.layout.rows_per_page;
  for (int64_t begin = 0; begin < most; begin += kSpanKeys) {
    task.begin = begin;
    task.end = std::min(most, begin + kSpanKeys);
    problem.kernels.attention(task);
    join(problem, pairs, scratch.span, scratch.total);
  }
}

// Copies the next keys of the list that this shard holds, at most kSpanKeys; returns how many.
int64_t gather(const RowCacheView& cache, int64_t own_position, std::span<const int32_t>* list,
               std::byte* to) {
  const int64_t row_bytes = cache.layout.row_bytes();
  int64_t count = 0;
  for (; count < kSpanKeys && !list->empty(); *list = list->subspan(1)) {
    const int64_t position = list->front();
    MOTLEY_CHECK(position >= 0 && position <= own_position, "a row sees no key after its own");
    if (!cache.shard.holds(position)) continue;
    std::copy_n(cache.row(cache.shard.tokens_below(position)), row_bytes, to + count * row_bytes);
    ++count;
  }
  return count;
}

void run_selection(const Problem& problem, const Tile& tile, const Scratch& scratch,
                   AttentionTask task) {
  const RowCacheView& cache = tile.segment->cache;
  for (int64_t page = 0; page < kSpanKeys / kPageKeys; ++page) {
    scratch.gathered_pages[page] = scratch.gathered + page * kPageKeys * cache.layout.row_bytes();
  }
  task.pages = scratch.gathered_pages;
  task.tokens_per_page = kPageKeys;
  std::span<const int32_t> list(problem.args.selection.positions.row<int32_t>(tile.first_row),
                                static_cast<size_t>(tile.count));
  for (;;) {
    task.end = gather(cache, position_of(tile, 0), &list, scratch.gathered);
    if (task.end == 0) return;
    std::fill_n(scratch.visible, task.pairs, task.end);
    problem.kernels.attention(task);
    join(problem, tile.heads, scratch.span, scratch.total);
  }
}

void run_tile(const Problem& problem, const Tile& tile, const Scratch& scratch) {
  const AttentionTask task = tile_task(problem, tile, scratch);
  clear(scratch.total, task.pairs, problem.padded_width);
  if (tile.count == kEveryKey) {
    run_every_key(problem, tile, scratch, task);
  } else {
    run_selection(problem, tile, scratch, task);
  }
  finish(problem, tile, scratch.total);
}

int32_t count_of(const LatentAttentionArgs& args, int64_t row) {
  return args.selection.is_empty() ? kEveryKey : *args.selection.counts.row<int32_t>(row);
}

// Calls use(tile) for every tile, the last rows of a segment first: they see most.
template <typename Use>
void for_each_tile(const Problem& problem, const Use& use) {
  const LatentAttentionArgs& args = problem.args;
  const int64_t heads = args.q.shape[1];
  for (const RowCacheSegment& segment : args.segments) {
    const int64_t first = segment.rows.first_row;
    for (int64_t end = segment.rows.rows; end > 0;) {
      Tile tile{.segment = &segment, .count = count_of(args, first + end - 1)};
      int64_t begin = end - 1;
      if (tile.count == kEveryKey) {
        while (begin > 0 && end - begin < problem.rows_per_tile &&
               count_of(args, first + begin - 1) == kEveryKey) {
          --begin;
        }
      }
      tile.first_row = first + begin;
      tile.rows = end - begin;
      for (int64_t head = 0; head < heads; head += problem.heads_per_tile) {
        tile.first_head = head;
        tile.heads = std::min(problem.heads_per_tile, heads - head);
        use(tile);
      }
      end = begin;
    }
  }
}

int64_t tile_count(const Problem& problem) {
  int64_t count = 0;
  for_each_tile(problem, [&](const Tile&) { ++count; });
  return count;
}

void check_args(const LatentAttentionArgs& args) {
  const int64_t width = args.q.shape[2];
  MOTLEY_CHECK(args.rank > 0 && args.rank <= width && args.result.out.shape[2] == args.rank,
               "values are a part of the cache rows");
  for (const RowCacheSegment& segment : args.segments) {
    const RowCacheLayout& layout = segment.cache.layout;
    const int64_t end = segment.rows.first_position.value + segment.rows.rows;
    const int64_t held = segment.cache.shard.tokens_below(end);
    MOTLEY_CHECK(layout.width == width, "queries must match the layout of the cache");
    MOTLEY_CHECK(layout.dtype == DType::kF32 || layout.dtype == DType::kBf16,
                 "the CPU keeps its cache in F32 or BF16");
    MOTLEY_CHECK(layout.rows_per_page % 4 == 0 && kSpanKeys % layout.rows_per_page == 0,
                 "whole pages in a span, of a multiple of four keys");
    MOTLEY_CHECK(held <= std::ssize(segment.cache.pages) * layout.rows_per_page &&
                     end <= segment.cache.length,
                 "the cache must hold the segment's own rows");
  }
}

}  // namespace

void cpu_latent_attend(const CpuKernels& kernels, Stream& stream, const LatentAttentionArgs& args) {
  check_args(args);
  const int64_t width = args.q.shape[2];
  const int64_t heads = args.q.shape[1];
  Problem problem{kernels, args, width,
                  (width + kernels.lanes - 1) / kernels.lanes * kernels.lanes};
  for (const RowCacheSegment& segment : args.segments) {
    problem.most_page_rows =
        std::max<int64_t>(problem.most_page_rows, segment.cache.layout.rows_per_page);
  }
  const int64_t workers = stream.threads().size();
  int64_t tiles = 0;
  for (int64_t queries = kMostQueries; queries >= kFewestQueries; queries /= 2) {
    problem.heads_per_tile = std::min(heads, queries);
    problem.rows_per_tile = std::max<int64_t>(1, queries / problem.heads_per_tile);
    tiles = tile_count(problem);
    if (tiles >= 4 * workers || workers == 1) break;
  }
  if (tiles == 0) return;
  const Arena::Scope scope(stream.scratch());
  auto* list = stream.scratch().allocate<Tile>(tiles);
  int64_t next = 0;
  for_each_tile(problem, [&](const Tile& tile) { list[next++] = tile; });
  auto* scratch = stream.scratch().allocate<Scratch>(workers);
  for (int64_t worker = 0; worker < workers; ++worker) {
    scratch[worker] = allocate_scratch(stream.scratch(), problem);
  }
  stream.threads().parallel_for(tiles, 1, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run_tile(problem, list[i], scratch[worker]);
  });
}

}  // namespace motley
