// Shares the attention product among threads.
//
// A tile is some rows of a segment times the query heads of one key/value head; its queries share
// every page that is read. The cache is cut into spans of kSpanPages pages; each query's spans are
// joined in order of position, by the same operations whether one task walks all spans of its tile
// or every (tile, span) is a task of its own. So the choice of tiles and tasks changes no bit.
#include "ops/cpu/cpu_ops.h"

#include <limits>

namespace motley {
namespace {

constexpr int64_t kSpanPages = 8;
// Queries that share a page: enough to hide reading it, few enough for the second-level cache.
constexpr int64_t kMostQueries = 128;
constexpr int64_t kFewestQueries = 16;

struct Tile {
  const AttentionSegment* segment = nullptr;
  int64_t kv_head = 0;
  int64_t first_row = 0;  // of the batch
  int64_t rows = 0;
  int64_t first_task = 0;  // when spans are tasks
  int64_t spans = 0;
};

struct Problem {
  const CpuKernels& kernels;
  const AttentionArgs& args;
  int64_t group;  // query heads per key/value head
  int64_t dim;
  int64_t padded_dim;
  int64_t rows_per_tile = 1;
  int64_t tokens_per_page = 1;  // the largest of all segments

  int64_t padded_pairs() const {
    const int64_t unit = kernels.attention_pairs;
    return (rows_per_tile * group + unit - 1) / unit * unit;
  }
  int64_t span_tokens(const Tile& tile) const {
    return kSpanPages * tile.segment->cache.layout.tokens_per_page;
  }
};

// Position one past the last that row `row` of the tile sees, in tokens of the shard.
int64_t visible_tokens(const Tile& tile, int64_t row) {
  const RowSegment& rows = tile.segment->rows;
  const int64_t position = rows.first_position.value + tile.first_row + row - rows.first_row;
  return tile.segment->cache.shard.tokens_below(position + 1);
}

// Results of one span (or of all spans so far) for the queries of a tile.
struct Accumulator {
  float* highest;  // [pairs]
  float* sum;      // [pairs]
  float* acc;      // [pairs, padded_dim]

  static int64_t floats(int64_t pairs, int64_t padded_dim) { return pairs * (padded_dim + 2); }
  static Accumulator at(float* base, int64_t pairs) {
    return {base, base + pairs, base + 2 * pairs};
  }
};

// Memory of one worker.
struct WorkerScratch {
  float* q;  // [pairs, padded_dim]
  int64_t* visible;
  Accumulator span;
  Accumulator total;
  float* kernel;
};

WorkerScratch allocate_worker(Arena& arena, const Problem& problem) {
  const int64_t pairs = problem.padded_pairs();
  const int64_t floats = Accumulator::floats(pairs, problem.padded_dim);
  WorkerScratch scratch;
  scratch.q = arena.allocate<float>(pairs * problem.padded_dim);
  scratch.visible = arena.allocate<int64_t>(pairs);
  scratch.span = Accumulator::at(arena.allocate<float>(floats), pairs);
  scratch.total = Accumulator::at(arena.allocate<float>(floats), pairs);
  scratch.kernel = arena.allocate<float>(
      problem.kernels.attention_scratch(pairs, problem.padded_dim, problem.tokens_per_page));
  return scratch;
}

// Packs the tile's queries and returns the task for all its tokens.
AttentionTask tile_task(const Problem& problem, const Tile& tile, const WorkerScratch& scratch) {
  const int64_t group = problem.group;
  const CacheView& cache = tile.segment->cache;
  const int64_t pairs = tile.rows * group;
  const int64_t unit = problem.kernels.attention_pairs;
  AttentionTask task;
  task.pairs = (pairs + unit - 1) / unit * unit;
  for (int64_t pair = 0; pair < task.pairs; ++pair) {
    // Queries that only fill up the last block repeat the last one.
    const int64_t source = std::min(pair, pairs - 1);
    const int64_t row = source / group;
    const float* q = problem.args.q.row<float>(tile.first_row + row) +
                     (tile.kv_head * group + source % group) * problem.dim;
    problem.kernels.scale_padded(q, problem.args.scale, problem.dim, problem.padded_dim,
                                 scratch.q + pair * problem.padded_dim);
    scratch.visible[pair] = visible_tokens(tile, row);
  }
  const auto head = static_cast<int>(tile.kv_head);
  const int64_t element_bytes = dtype_bytes(cache.layout.dtype);
  task.q = scratch.q;
  task.visible = scratch.visible;
  task.pages = cache.pages.data();
  task.key_bytes = cache.layout.key_offset(head, 0) * element_bytes;
  task.value_bytes = cache.layout.value_offset(head, 0) * element_bytes;
  task.is_bf16 = cache.layout.dtype == DType::kBf16;
  task.tokens_per_page = cache.layout.tokens_per_page;
  task.end = visible_tokens(tile, tile.rows - 1);
  task.dim = problem.dim;
  task.padded_dim = problem.padded_dim;
  task.value_dim = problem.padded_dim;
  task.scratch = scratch.kernel;
  return task;
}

void run_span(const Problem& problem, const Tile& tile, int64_t span, AttentionTask task,
              const Accumulator& into) {
  const int64_t tokens = problem.span_tokens(tile);
  task.begin = span * tokens;
  task.end = std::min(task.end, task.begin + tokens);
  task.highest = into.highest;
  task.sum = into.sum;
  task.acc = into.acc;
  problem.kernels.attention(task);
}

void clear(const Accumulator& total, int64_t pairs, int64_t padded_dim) {
  std::fill_n(total.highest, pairs, -std::numeric_limits<float>::infinity());
  std::fill_n(total.sum, pairs, 0.0f);
  std::fill_n(total.acc, pairs * padded_dim, 0.0f);
}

void join(const Problem& problem, const Accumulator& from, int64_t pair, const Accumulator& into) {
  const int64_t width = problem.padded_dim;
  problem.kernels.attention_join(from.acc + pair * width, from.highest[pair], from.sum[pair], width,
                                 into.acc + pair * width, into.highest + pair, into.sum + pair);
}

void finish(const Problem& problem, const Tile& tile, const Accumulator& total, int64_t pair) {
  const int64_t row = tile.first_row + pair / problem.group;
  const int64_t head = tile.kv_head * problem.group + pair % problem.group;
  const PartialAttention& result = problem.args.result;
  problem.kernels.attention_finish(
      total.acc + pair * problem.padded_dim, total.highest[pair], total.sum[pair], problem.dim,
      result.out.row<float>(row) + head * problem.dim, result.lse.values.row<float>(row) + head);
}

// All spans of a tile, one after the other.
void run_tile(const Problem& problem, const Tile& tile, const WorkerScratch& scratch) {
  const AttentionTask task = tile_task(problem, tile, scratch);
  const int64_t pairs = tile.rows * problem.group;
  clear(scratch.total, task.pairs, problem.padded_dim);
  for (int64_t span = 0; span < tile.spans; ++span) {
    run_span(problem, tile, span, task, scratch.span);
    for (int64_t pair = 0; pair < pairs; ++pair) join(problem, scratch.span, pair, scratch.total);
  }
  for (int64_t pair = 0; pair < pairs; ++pair) finish(problem, tile, scratch.total, pair);
}

int64_t tile_count(const AttentionArgs& args, int64_t rows_per_tile) {
  int64_t count = 0;
  for (const AttentionSegment& segment : args.segments) {
    count += (segment.rows.rows + rows_per_tile - 1) / rows_per_tile * args.kv_heads;
  }
  return count;
}

// The last rows of a segment, which see most, come first, so that no thread ends on a long tile.
std::span<const Tile> make_tiles(Stream& stream, const Problem& problem) {
  const int64_t count = tile_count(problem.args, problem.rows_per_tile);
  auto* tiles = stream.scratch().allocate<Tile>(count);
  int64_t next = 0;
  int64_t next_task = 0;
  for (const AttentionSegment& segment : problem.args.segments) {
    for (int64_t end = segment.rows.rows; end > 0; end -= problem.rows_per_tile) {
      const int64_t begin = std::max<int64_t>(0, end - problem.rows_per_tile);
      for (int64_t kv_head = 0; kv_head < problem.args.kv_heads; ++kv_head) {
        Tile tile{&segment, kv_head, segment.rows.first_row + begin, end - begin, next_task, 0};
        const int64_t span_tokens = problem.span_tokens(tile);
        tile.spans = (visible_tokens(tile, tile.rows - 1) + span_tokens - 1) / span_tokens;
        next_task += tile.spans;
        tiles[next++] = tile;
      }
    }
  }
  return {tiles, static_cast<size_t>(count)};
}

// Every (tile, span) is a task; then each query joins its spans.
void run_spans(Stream& stream, const Problem& problem, std::span<const Tile> tiles,
               const WorkerScratch* scratch) {
  const int64_t pairs = problem.padded_pairs();
  const int64_t floats = Accumulator::floats(pairs, problem.padded_dim);
  const int64_t tasks = tiles.back().first_task + tiles.back().spans;
  auto* partials = stream.scratch().allocate<float>(tasks * floats);
  stream.threads().parallel_for(tasks, 1, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto after =
          std::upper_bound(tiles.begin(), tiles.end(), i,
                           [](int64_t task, const Tile& tile) { return task < tile.first_task; });
      const Tile& tile = *(after - 1);
      run_span(problem, tile, i - tile.first_task, tile_task(problem, tile, scratch[worker]),
               Accumulator::at(partials + i * floats, pairs));
    }
  });
  stream.threads().parallel_for(
      static_cast<int64_t>(tiles.size()), 1, [&](int worker, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const Tile& tile = tiles[static_cast<size_t>(i)];
          const Accumulator& total = scratch[worker].total;
          clear(total, pairs, problem.padded_dim);
          for (int64_t pair = 0; pair < tile.rows * problem.group; ++pair) {
            for (int64_t span = 0; span < tile.spans; ++span) {
              float* base = partials + (tile.first_task + span) * floats;
              join(problem, Accumulator::at(base, pairs), pair, total);
            }
            finish(problem, tile, total, pair);
          }
        }
      });
}

void check_segments(const AttentionArgs& args) {
  for (const AttentionSegment& segment : args.segments) {
    const PageLayout& layout = segment.cache.layout;
    const int64_t end = segment.rows.first_position.value + segment.rows.rows;
    const int64_t pages = (segment.cache.shard.tokens_below(end) + layout.tokens_per_page - 1) /
                          layout.tokens_per_page;
    MOTLEY_CHECK(layout.kv_heads == args.kv_heads && layout.head_dim == args.q.shape[2],
                 "queries must match the layout of the cache");
    MOTLEY_CHECK(layout.dtype == DType::kF32 || layout.dtype == DType::kBf16,
                 "the CPU keeps its cache in F32 or BF16");
    MOTLEY_CHECK(layout.tokens_per_page % 4 == 0, "pages hold a multiple of four tokens");
    MOTLEY_CHECK(
        pages <= static_cast<int64_t>(segment.cache.pages.size()) && end <= segment.cache.length,
        "the cache must hold the segment's own rows");
  }
}

}  // namespace

void cpu_attend(const CpuKernels& kernels, Stream& stream, const AttentionArgs& args) {
  const int64_t heads = args.q.shape[1];
  MOTLEY_CHECK(args.kv_heads > 0 && heads % args.kv_heads == 0,
               "whole query heads per key/value head");
  check_segments(args);
  const int64_t dim = args.q.shape[2];
  Problem problem{kernels, args, heads / args.kv_heads, dim,
                  (dim + kernels.lanes - 1) / kernels.lanes * kernels.lanes};
  for (const AttentionSegment& segment : args.segments) {
    problem.tokens_per_page =
        std::max<int64_t>(problem.tokens_per_page, segment.cache.layout.tokens_per_page);
  }
  const int64_t workers = stream.threads().size();
  const auto is_balanced = [&] {
    return tile_count(args, problem.rows_per_tile) >= 4 * workers || workers == 1;
  };
  int64_t queries = kMostQueries;
  for (;; queries /= 2) {
    problem.rows_per_tile = std::max<int64_t>(1, queries / problem.group);
    if (is_balanced() || queries == kFewestQueries) break;
  }
  const Arena::Scope scope(stream.scratch());
  const std::span<const Tile> tiles = make_tiles(stream, problem);
  if (tiles.empty()) return;
  auto* scratch = stream.scratch().allocate<WorkerScratch>(workers);
  for (int64_t worker = 0; worker < workers; ++worker) {
    scratch[worker] = allocate_worker(stream.scratch(), problem);
  }
  if (!is_balanced()) {
    run_spans(stream, problem, tiles, scratch);
    return;
  }
  stream.threads().parallel_for(
      static_cast<int64_t>(tiles.size()), 1, [&](int worker, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          run_tile(problem, tiles[static_cast<size_t>(i)], scratch[worker]);
        }
      });
}

}  // namespace motley
