#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>

#include "base/check.h"

namespace motley {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
constexpr uint32_t kNone = UINT32_MAX;
// Up to here a scan for the lowest rank beats a heap.
constexpr size_t kShortWord = 40;

uint64_t pair_key(TokenId left, TokenId right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

uint64_t mix(uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return key ^ (key >> 29);
}

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size();
  while (bytes.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    hash = mix(hash ^ word) * 0xD6E8FEB86659FD93u;
    bytes.remove_prefix(8);
  }
  uint64_t word = 0;
  if (!bytes.empty()) std::memcpy(&word, bytes.data(), bytes.size());
  hash = mix(hash ^ word) * 0xD6E8FEB86659FD93u;
  return hash ^ (hash >> 32);
}

size_t table_size(size_t entries) {
  return std::bit_ceil(std::max<size_t>(16, entries * 2));
}

}  // namespace

BpeModel::BpeModel(const std::array<TokenId, 256>& byte_ids, const std::vector<BpeMerge>& merges,
                   const std::vector<BpeToken>& tokens, bool ignore_merges)
    : byte_ids_(byte_ids), merges_(table_size(merges.size())), words_(table_size(tokens.size())) {
  const size_t mask = merges_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    const uint64_t key = pair_key(merge.left, merge.right);
    size_t at = mix(key) & mask;
    while (merges_[at].pair != kEmptyPair && merges_[at].pair != key) at = (at + 1) & mask;
    merges_[at] = {key, static_cast<uint32_t>(rank), merge.merged};
  }
  // A token that its own bytes encode to needs no merging later: most words of real text.
  Scratch scratch;
  std::vector<TokenId> ids;
  std::vector<BpeToken> own;
  for (const BpeToken& token : tokens) {
    const bool has_bytes = std::all_of(token.bytes.begin(), token.bytes.end(), [this](char c) {
      return byte_ids_[static_cast<unsigned char>(c)] >= 0;
    });
    if (!has_bytes || token.bytes.empty()) continue;
    ids.clear();
    if (!ignore_merges) merge_bytes(token.bytes, scratch, ids);
    if (ignore_merges || (ids.size() == 1 && ids[0] == token.id)) own.push_back(token);
  }
  for (const BpeToken& token : own) insert_word(token);
}

void BpeModel::insert_word(const BpeToken& token) {
  const size_t mask = words_.size() - 1;
  size_t at = hash_bytes(token.bytes) & mask;
  while (words_[at].id >= 0) at = (at + 1) & mask;
  words_[at] = {word_bytes_.size(), static_cast<uint32_t>(token.bytes.size()), token.id};
  word_bytes_.append(token.bytes);
  longest_word_ = std::max(longest_word_, token.bytes.size());
}

TokenId BpeModel::find_word(std::string_view word) const {
  if (word.size() > longest_word_) return -1;
  const size_t mask = words_.size() - 1;
  for (size_t at = hash_bytes(word) & mask; words_[at].id >= 0; at = (at + 1) & mask) {
    const WordSlot& slot = words_[at];
    if (slot.length == word.size() &&
        std::memcmp(word_bytes_.data() + slot.offset, word.data(), word.size()) == 0) {
      return slot.id;
    }
  }
  return -1;
}

const BpeModel::MergeSlot* BpeModel::find_merge(TokenId left, TokenId right) const {
  const uint64_t key = pair_key(left, right);
  const size_t mask = merges_.size() - 1;
  for (size_t at = mix(key) & mask; merges_[at].pair != kEmptyPair; at = (at + 1) & mask) {
    if (merges_[at].pair == key) return &merges_[at];
  }
  return nullptr;
}

uint32_t BpeModel::rank_of(TokenId left, TokenId right) const {
  const MergeSlot* slot = find_merge(left, right);
  return slot != nullptr ? slot->rank : kNoRank;
}

void BpeModel::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  const TokenId known = find_word(word);
  if (known >= 0) {
    out.push_back(known);
  } else {
    merge_bytes(word, scratch, out);
  }
}

void BpeModel::merge_bytes(std::string_view word, Scratch& scratch,
                           std::vector<TokenId>& out) const {
  const size_t count = word.size();
  MOTLEY_CHECK(count < (size_t{1} << 31), "a word must be under 2^31 bytes");
  scratch.ids.resize(count);
  scratch.ranks.resize(count);
  for (size_t i = 0; i < count; ++i) {
    scratch.ids[i] = byte_ids_[static_cast<unsigned char>(word[i])];
    MOTLEY_CHECK(scratch.ids[i] >= 0, "every byte of a word needs a token");
  }
  for (size_t i = 0; i + 1 < count; ++i) {
    scratch.ranks[i] = rank_of(scratch.ids[i], scratch.ids[i + 1]);
  }
  if (count > 0) scratch.ranks[count - 1] = kNoRank;
  if (count <= kShortWord) {
    merge_short(scratch, out);
  } else {
    merge_long(scratch, out);
  }
}

void BpeModel::merge_short(Scratch& scratch, std::vector<TokenId>& out) const {
  std::vector<TokenId>& ids = scratch.ids;
  std::vector<uint32_t>& ranks = scratch.ranks;
  size_t count = ids.size();
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    ids[best] = find_merge(ids[best], ids[best + 1])->merged;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
    }
    --count;
    ranks[best] = best + 1 < count ? rank_of(ids[best], ids[best + 1]) : kNoRank;
    if (best > 0) ranks[best - 1] = rank_of(ids[best - 1], ids[best]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
}

// A linked list of symbols and a heap of (rank, place). An entry is stale when the pair at its
// place has another rank by now.
void BpeModel::merge_long(Scratch& scratch, std::vector<TokenId>& out) const {
  std::vector<TokenId>& ids = scratch.ids;
  std::vector<uint32_t>& ranks = scratch.ranks;
  const auto count = static_cast<uint32_t>(ids.size());
  scratch.next.resize(count);
  scratch.previous.resize(count);
  scratch.heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    scratch.next[i] = i + 1 < count ? i + 1 : kNone;
    scratch.previous[i] = i > 0 ? i - 1 : kNone;
    if (ranks[i] != kNoRank) scratch.heap.push_back((static_cast<uint64_t>(ranks[i]) << 32) | i);
  }
  const auto later = std::greater<uint64_t>();
  std::make_heap(scratch.heap.begin(), scratch.heap.end(), later);
  const auto set_rank = [&](uint32_t at) {
    const uint32_t right = scratch.next[at];
    ranks[at] = right != kNone ? rank_of(ids[at], ids[right]) : kNoRank;
    if (ranks[at] == kNoRank) return;
    scratch.heap.push_back((static_cast<uint64_t>(ranks[at]) << 32) | at);
    std::push_heap(scratch.heap.begin(), scratch.heap.end(), later);
  };
  while (!scratch.heap.empty()) {
    const uint64_t top = scratch.heap.front();
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), later);
    scratch.heap.pop_back();
    const auto at = static_cast<uint32_t>(top);
    if (ranks[at] != static_cast<uint32_t>(top >> 32)) continue;
    const uint32_t right = scratch.next[at];
    ids[at] = find_merge(ids[at], ids[right])->merged;
    ranks[right] = kNoRank;
    scratch.next[at] = scratch.next[right];
    if (scratch.next[at] != kNone) scratch.previous[scratch.next[at]] = at;
    set_rank(at);
    if (scratch.previous[at] != kNone) set_rank(scratch.previous[at]);
  }
  for (uint32_t at = 0; at != kNone; at = scratch.next[at]) out.push_back(ids[at]);
}

}  // namespace motley
