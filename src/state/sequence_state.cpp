#include "state/sequence_state.h"

#include <algorithm>
#include <cstring>

namespace motley {
namespace {

constexpr size_t kAlignment = 64;

bool is_paged(const StateEntry& entry) {
  return entry.bytes_per_token > 0;
}

}  // namespace

SequenceState::SequenceState(const StateLayout& layout, PagePool& pool)
    : layout_(&layout), pool_(&pool) {
  size_t offset = 0;
  int layers = 0;
  for (const StateEntry& entry : layout.entries) {
    Piece piece{.layer = entry.layer, .kind = entry.kind};
    if (is_paged(entry)) {
      piece.page_bytes = entry.bytes_per_token * StateLayout::kTokensPerPage;
    } else {
      piece.offset = offset;
      offset += (static_cast<size_t>(entry.fixed_bytes) + kAlignment - 1) / kAlignment * kAlignment;
    }
    pieces_.push_back(std::move(piece));
    layers = std::max(layers, entry.layer + 1);
  }
  carry_rows_.assign(static_cast<size_t>(layers), 0);
}

Result<SequenceState> SequenceState::create(const StateLayout& layout, PagePool& pool) {
  SequenceState state(layout, pool);
  size_t bytes = 0;
  for (const StateEntry& entry : layout.entries) {
    bytes += (static_cast<size_t>(entry.fixed_bytes) + kAlignment - 1) / kAlignment * kAlignment;
  }
  MOTLEY_RETURN_IF_ERROR(pool.charge(static_cast<int64_t>(bytes)));
  Result<AlignedBuffer> fixed = AlignedBuffer::allocate(bytes);
  if (!fixed.is_ok()) {
    pool.discharge(static_cast<int64_t>(bytes));
    return fixed.status();
  }
  state.fixed_ = std::move(fixed).value();
  return state;
}

SequenceState::SequenceState(SequenceState&& other) noexcept
    : layout_(other.layout_),
      pool_(other.pool_),
      fixed_(std::move(other.fixed_)),
      pieces_(std::move(other.pieces_)),
      carry_rows_(std::move(other.carry_rows_)),
      length_(other.length_),
      draft_length_(other.draft_length_) {
  other.pool_ = nullptr;
}

SequenceState::~SequenceState() {
  if (pool_ == nullptr) return;  // moved from
  clear();
  pool_->discharge(static_cast<int64_t>(fixed_.size()));
}

Status SequenceState::reserve(int64_t tokens) {
  const int64_t pages = (tokens + StateLayout::kTokensPerPage - 1) / StateLayout::kTokensPerPage;
  for (Piece& piece : pieces_) {
    while (piece.page_bytes > 0 && static_cast<int64_t>(piece.pages.size()) < pages) {
      MOTLEY_ASSIGN_OR_RETURN(std::byte * page, pool_->take(piece.page_bytes));
      piece.pages.push_back(page);
    }
  }
  return Status::ok();
}

void SequenceState::clear() {
  for (Piece& piece : pieces_) {
    for (std::byte* page : piece.pages) pool_->give_back(page, piece.page_bytes);
    piece.pages.clear();
  }
  if (fixed_.size() > 0) std::memset(fixed_.data(), 0, fixed_.size());
  std::fill(carry_rows_.begin(), carry_rows_.end(), 0);
  length_ = 0;
  draft_length_ = 0;
}

CacheView SequenceState::cache(int layer, StateKind kind, const PageLayout& head_layout,
                               int64_t tokens) {
  Piece& found = piece(layer, kind);
  MOTLEY_CHECK(head_layout.tokens_per_page == StateLayout::kTokensPerPage &&
                   head_layout.page_bytes() == found.page_bytes,
               "the block and the state layout disagree about a page");
  const int64_t held = static_cast<int64_t>(found.pages.size()) * StateLayout::kTokensPerPage;
  MOTLEY_CHECK(tokens <= held, "cache view over pages that were not reserved");
  return {.pages = found.pages, .layout = head_layout, .shard = {}, .length = tokens};
}

RowCacheView SequenceState::rows(int layer, StateKind kind, const RowCacheLayout& row_layout,
                                 int64_t rows) {
  Piece& found = piece(layer, kind);
  // Bytes per token are whole, so rows of several tokens may leave less than that unused.
  const int64_t unused = found.page_bytes - row_layout.page_bytes();
  MOTLEY_CHECK(unused >= 0 && unused < StateLayout::kTokensPerPage,
               "the block and the state layout disagree about a page");
  MOTLEY_CHECK(rows <= std::ssize(found.pages) * row_layout.rows_per_page,
               "cache view over pages that were not reserved");
  return {.pages = found.pages, .layout = row_layout, .shard = {}, .length = rows};
}

std::byte* SequenceState::fixed(int layer, StateKind kind) {
  return fixed_.data() + piece(layer, kind).offset;
}

int64_t SequenceState::bytes() const {
  auto total = static_cast<int64_t>(fixed_.size());
  for (const Piece& piece : pieces_) {
    total += static_cast<int64_t>(piece.pages.size()) * piece.page_bytes;
  }
  return total;
}

std::vector<std::byte> SequenceState::save_fixed() const {
  return {fixed_.data(), fixed_.data() + fixed_.size()};
}

void SequenceState::restore_fixed(const std::vector<std::byte>& saved) {
  MOTLEY_CHECK(saved.size() == fixed_.size(), "snapshot of another layout");
  std::memcpy(fixed_.data(), saved.data(), saved.size());
}

bool SequenceState::has_carry() const {
  return std::any_of(carry_rows_.begin(), carry_rows_.end(), [](int32_t rows) { return rows > 0; });
}

SequenceState::Piece& SequenceState::piece(int layer, StateKind kind) {
  const auto found = std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& candidate) {
    return candidate.layer == layer && candidate.kind == kind;
  });
  MOTLEY_CHECK(found != pieces_.end(), "no such piece of state in the layout");
  return *found;
}

}  // namespace motley
