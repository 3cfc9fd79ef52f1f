#include "text/tokenizer.h"

#include <fmt/format.h>

#include "text/nfc.h"
#include "text/tokenizer_tables.h"
#include "text/utf8.h"

namespace motley {
namespace {

// What one call of encode carries along.
struct EncodeRun {
  Regex::Scratch regex_scratch;
  BpeModel::Scratch bpe_scratch;
  std::vector<TokenId> out;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Tables> tables) : tables_(std::move(tables)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxEncodeBytes) {
    return resource_exhausted(fmt::format("a text of {} bytes is over the tokenizer's limit of {}",
                                          text.size(), kMaxEncodeBytes));
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  const Tables& tables = *tables_;
  const bool skip_special = !options.parse_special;
  EncodeRun run;
  if (options.add_special) run.out = tables.prefix;
  const auto encode_word = [&](std::string_view word) {
    tables.model.encode(word, run.bpe_scratch, run.out);
    return Status::ok();
  };
  const auto normalized_piece = [&](const AddedTokenMatcher::Piece& piece) {
    if (piece.token == nullptr) {
      return tables.pre_tokenizer.split(piece.text, run.regex_scratch, encode_word);
    }
    run.out.push_back(piece.token->id);
    return Status::ok();
  };
  const auto raw_piece = [&](const AddedTokenMatcher::Piece& piece) {
    if (piece.token != nullptr) {
      run.out.push_back(piece.token->id);
      return Status::ok();
    }
    std::string normalized;
    std::string_view piece_text = piece.text;
    if (tables.normalize_nfc) {
      normalized = normalize_nfc(piece_text);
      piece_text = normalized;
    }
    return tables.normalized_matcher.split(piece_text, tables.added, skip_special,
                                           normalized_piece);
  };
  MOTLEY_RETURN_IF_ERROR(tables.raw_matcher.split(text, tables.added, skip_special, raw_piece));
  if (options.add_special) {
    run.out.insert(run.out.end(), tables.suffix.begin(), tables.suffix.end());
  }
  return std::move(run.out);
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : tokens) {
    if (skip_special && is_special(id)) continue;
    bytes += token_bytes(id);
  }
  return is_valid_utf8(bytes) ? bytes : replace_invalid_utf8(bytes);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (!tables_->has(id)) return {};
  const TokenEntry& entry = tables_->entries[static_cast<size_t>(id)];
  return std::string_view(tables_->bytes).substr(entry.offset, entry.length);
}

std::optional<TokenId> Tokenizer::token_id(std::string_view spelling) const {
  const auto found = tables_->ids_by_spelling.find(std::string(spelling));
  if (found == tables_->ids_by_spelling.end()) return std::nullopt;
  return found->second;
}

size_t Tokenizer::vocab_size() const {
  return tables_->entries.size();
}

bool Tokenizer::has_token(TokenId id) const {
  return tables_->has(id);
}

bool Tokenizer::is_special(TokenId id) const {
  return tables_->has(id) && tables_->entries[static_cast<size_t>(id)].special;
}

bool Tokenizer::is_added(TokenId id) const {
  return tables_->has(id) && tables_->entries[static_cast<size_t>(id)].added;
}

}  // namespace motley
