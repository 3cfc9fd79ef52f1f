// From the raw content of a tokenizer.json to the tables of a Tokenizer, checking everything.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/file.h"
#include "text/byte_alphabet.h"
#include "text/json_reader.h"
#include "text/nfc.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_tables.h"
#include "text/utf8.h"

namespace motley {
namespace {

using Json = nlohmann::json;

// The value of an optional key; a shared null when it is absent.
const Json& value_of(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string type_of(const Json& object) {
  const Json& type = object.is_object() ? value_of(object, "type") : object;
  return type.is_string() ? type.get<std::string>() : std::string();
}

bool is_unset(const Json& value) {
  return value.is_null() || value == false || value == "" || value == 0 || value == 0.0;
}

// Bytes that occur in UTF-8. The other 13 never reach the model.
bool occurs_in_utf8(int byte) {
  return byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
}

}  // namespace

class TokenizerLoader {
 public:
  explicit TokenizerLoader(RawTokenizer raw)
      : raw_(std::move(raw)), tables_(std::make_unique<Tokenizer::Tables>()) {}

  Result<Tokenizer> run() {
    MOTLEY_RETURN_IF_ERROR(check_top_level());
    MOTLEY_RETURN_IF_ERROR(read_normalizer(value_of(raw_.rest, "normalizer"), 0));
    MOTLEY_RETURN_IF_ERROR(read_vocab());
    MOTLEY_RETURN_IF_ERROR(read_added_tokens());
    MOTLEY_RETURN_IF_ERROR(build_matchers());
    MOTLEY_RETURN_IF_ERROR(read_decoder(value_of(raw_.rest, "decoder")));
    MOTLEY_RETURN_IF_ERROR(read_post_processor(value_of(raw_.rest, "post_processor"), 0));
    MOTLEY_ASSIGN_OR_RETURN(tables_->pre_tokenizer,
                            PreTokenizer::from_json(value_of(raw_.rest, "pre_tokenizer")));
    MOTLEY_RETURN_IF_ERROR(build_model());
    return Tokenizer(std::move(tables_));
  }

 private:
  Status check_top_level() const {
    MOTLEY_RETURN_IF_ERROR(
        check_known_keys(raw_.rest, "tokenizer",
                         {"version", "truncation", "padding", "added_tokens", "normalizer",
                          "pre_tokenizer", "post_processor", "decoder", "model"}));
    const Json& version = value_of(raw_.rest, "version");
    if (!version.is_null() && version != "1.0") return unsupported("version must be \"1.0\"");
    for (const char* key : {"truncation", "padding"}) {
      if (!value_of(raw_.rest, key).is_null()) {
        return unsupported(fmt::format("{} must be null; sequences are never cut or padded", key));
      }
    }
    const Json& model = value_of(raw_.rest, "model");
    MOTLEY_RETURN_IF_ERROR(check_known_keys(
        model, "model",
        {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
         "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
    if (!value_of(model, "type").is_null() && type_of(model) != "BPE") {
      return unsupported(
          fmt::format("model.type '{}' is not BPE", printable_excerpt(type_of(model))));
    }
    // unk_token and fuse_unk are never used: every byte must have a token (build_model).
    for (const char* key :
         {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
      if (!is_unset(value_of(model, key))) {
        return unsupported(fmt::format("model.{} is set, which is not supported", key));
      }
    }
    const Json& ignore = value_of(model, "ignore_merges");
    if (!ignore.is_null() && !ignore.is_boolean()) {
      return corrupt("model.ignore_merges must be true or false");
    }
    return Status::ok();
  }

  Status read_normalizer(const Json& config, int depth) {
    if (config.is_null()) return Status::ok();
    const std::string type = type_of(config);
    if (type == "NFC") {
      tables_->normalize_nfc = true;
      return check_known_keys(config, "normalizer", {"type"});
    }
    if (type != "Sequence" || depth > 4) {
      return unsupported(
          fmt::format("normalizer.type '{}' is not supported (only NFC)", printable_excerpt(type)));
    }
    MOTLEY_RETURN_IF_ERROR(check_known_keys(config, "normalizer", {"type", "normalizers"}));
    const Json& list = value_of(config, "normalizers");
    if (!list.is_array()) return corrupt("normalizer.normalizers must be a list");
    for (const Json& entry : list) {
      if (entry.is_null()) return corrupt("normalizer.normalizers holds a null");
      MOTLEY_RETURN_IF_ERROR(read_normalizer(entry, depth + 1));
    }
    return Status::ok();
  }

  void add_entry(TokenId id, std::string_view bytes) {
    const auto at = static_cast<size_t>(id);
    if (at >= tables_->entries.size()) tables_->entries.resize(at + 1);
    TokenEntry& entry = tables_->entries[at];
    entry.offset = tables_->bytes.size();
    entry.length = static_cast<uint32_t>(bytes.size());
    entry.exists = true;
    tables_->bytes += bytes;
  }

  Status read_vocab() {
    auto& ids = tables_->ids_by_spelling;
    ids.reserve(raw_.vocab.size());
    for (auto& [spelling, id] : raw_.vocab) {
      if (tables_->has(id)) {
        return corrupt(fmt::format("model.vocab: id {} belongs to two tokens, one is '{}'", id,
                                   printable_excerpt(spelling)));
      }
      const auto bytes = bytes_of_spelling(spelling);
      add_entry(id, bytes ? *bytes : spelling);
      if (bytes) model_tokens_.push_back({tables_->entries[static_cast<size_t>(id)], id});
      if (!ids.emplace(spelling, id).second) {
        return corrupt(
            fmt::format("model.vocab: token '{}' appears twice", printable_excerpt(spelling)));
      }
    }
    return Status::ok();
  }

  static Result<AddedToken> added_token(const Json& config, const std::string& where) {
    MOTLEY_RETURN_IF_ERROR(check_known_keys(
        config, where,
        {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
    AddedToken token;
    const Json& id = value_of(config, "id");
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= uint64_t{kTokenIdLimit}) {
      return corrupt(fmt::format("{}.id must be a whole number below {}", where, kTokenIdLimit));
    }
    token.id = static_cast<TokenId>(id.get<uint64_t>());
    const Json& content = value_of(config, "content");
    if (!content.is_string() || content.get_ref<const std::string&>().empty() ||
        content.get_ref<const std::string&>().size() > kMaxAddedTokenBytes) {
      return corrupt(
          fmt::format("{}.content must be a text of 1 to {} bytes", where, kMaxAddedTokenBytes));
    }
    token.content = content.get<std::string>();
    const std::array<std::pair<const char*, bool*>, 5> flags = {{
        {"single_word", &token.single_word},
        {"lstrip", &token.lstrip},
        {"rstrip", &token.rstrip},
        {"special", &token.special},
        {"normalized", &token.normalized},
    }};
    for (const auto& [name, target] : flags) {
      const Json& value = value_of(config, name);
      if (!value.is_boolean()) {
        return corrupt(fmt::format("{}.{} must be true or false", where, name));
      }
      *target = value.get<bool>();
    }
    return token;
  }

  Status read_added_tokens() {
    const Json& list = value_of(raw_.rest, "added_tokens");
    if (list.is_null()) return Status::ok();
    if (!list.is_array()) return corrupt("added_tokens must be a list");
    if (list.size() > kMaxAddedTokens) {
      return corrupt(fmt::format("added_tokens: {} entries are over the limit of {}", list.size(),
                                 kMaxAddedTokens));
    }
    for (const Json& config : list) {
      const std::string where = fmt::format("added_tokens[{}]", tables_->added.size());
      MOTLEY_ASSIGN_OR_RETURN(AddedToken token, added_token(config, where));
      MOTLEY_RETURN_IF_ERROR(place_added_token(token, where));
      tables_->added.push_back(std::move(token));
    }
    return Status::ok();
  }

  Status place_added_token(const AddedToken& token, const std::string& where) {
    const auto known = tables_->ids_by_spelling.find(token.content);
    const bool is_known = known != tables_->ids_by_spelling.end();
    if (is_known && known->second != token.id) {
      return corrupt(fmt::format("{}: '{}' has id {} here and {} elsewhere", where,
                                 printable_excerpt(token.content), token.id, known->second));
    }
    if (!is_known && tables_->has(token.id)) {
      return corrupt(fmt::format("{}: id {} of '{}' belongs to another token", where, token.id,
                                 printable_excerpt(token.content)));
    }
    if (is_known && tables_->entries[static_cast<size_t>(token.id)].added) {
      return corrupt(
          fmt::format("{}: '{}' is added twice", where, printable_excerpt(token.content)));
    }
    add_entry(token.id, token.content);
    TokenEntry& entry = tables_->entries[static_cast<size_t>(token.id)];
    entry.special = token.special;
    entry.added = true;
    tables_->ids_by_spelling.emplace(token.content, token.id);
    return Status::ok();
  }

  Status build_matchers() {
    for (size_t i = 0; i < tables_->added.size(); ++i) {
      const AddedToken& token = tables_->added[i];
      const bool change = token.normalized && tables_->normalize_nfc;
      const std::string content = change ? normalize_nfc(token.content) : token.content;
      AddedTokenMatcher& matcher =
          token.normalized ? tables_->normalized_matcher : tables_->raw_matcher;
      if (!matcher.add(content, i)) {
        return corrupt(
            fmt::format("added_tokens[{}]: '{}' is another token's text after "
                        "normalisation",
                        i, printable_excerpt(token.content)));
      }
    }
    return Status::ok();
  }

  static Status read_decoder(const Json& config) {
    const std::string type = type_of(config);
    if (type == "ByteLevel") {
      return check_known_keys(config, "decoder",
                              {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    }
    if (type == "Sequence") {
      MOTLEY_RETURN_IF_ERROR(check_known_keys(config, "decoder", {"type", "decoders"}));
      const Json& list = value_of(config, "decoders");
      if (list.is_array() && list.size() == 1 && type_of(list[0]) == "ByteLevel") {
        return read_decoder(list[0]);
      }
    }
    return unsupported(
        fmt::format("decoder.type '{}' is not supported (only ByteLevel, or a "
                    "Sequence of one)",
                    printable_excerpt(type)));
  }

  Status read_post_processor(const Json& config, int depth) {
    const std::string type = type_of(config);
    // ByteLevel changes offsets only.
    if (config.is_null() || type == "ByteLevel") return Status::ok();
    if (type == "Sequence" && depth < 4) {
      MOTLEY_RETURN_IF_ERROR(check_known_keys(config, "post_processor", {"type", "processors"}));
      const Json& list = value_of(config, "processors");
      if (!list.is_array()) return corrupt("post_processor.processors must be a list");
      for (const Json& entry : list) {
        MOTLEY_RETURN_IF_ERROR(read_post_processor(entry, depth + 1));
      }
      return Status::ok();
    }
    if (type == "TemplateProcessing") return read_template(config);
    return unsupported(
        fmt::format("post_processor.type '{}' is not supported", printable_excerpt(type)));
  }

  // The "single" template: special tokens, the text once, special tokens.
  Status read_template(const Json& config) {
    MOTLEY_RETURN_IF_ERROR(
        check_known_keys(config, "post_processor", {"type", "single", "pair", "special_tokens"}));
    if (!tables_->prefix.empty() || !tables_->suffix.empty()) {
      return unsupported("post_processor holds more than one TemplateProcessing");
    }
    const Json& single = value_of(config, "single");
    if (!single.is_array() || single.size() > 64) {
      return corrupt("post_processor.single must be a list of at most 64 entries");
    }
    bool seen_text = false;
    for (const Json& entry : single) {
      if (!entry.is_object() || entry.size() != 1) {
        return corrupt("post_processor.single: every entry must be one object");
      }
      if (entry.contains("Sequence")) {
        if (seen_text || value_of(entry["Sequence"], "id") != "A") {
          return unsupported("post_processor.single must hold sequence A once");
        }
        seen_text = true;
        continue;
      }
      MOTLEY_RETURN_IF_ERROR(template_token(entry, value_of(config, "special_tokens"),
                                            seen_text ? tables_->suffix : tables_->prefix));
    }
    return seen_text ? Status::ok() : corrupt("post_processor.single never holds the text");
  }

  Status template_token(const Json& entry, const Json& special_tokens,
                        std::vector<TokenId>& out) const {
    const Json& token = value_of(entry, "SpecialToken");
    const Json& name = token.is_object() ? value_of(token, "id") : token;
    if (!name.is_string() || !special_tokens.is_object()) {
      return unsupported("post_processor.single may hold SpecialToken and Sequence entries only");
    }
    const auto& key = name.get_ref<const std::string&>();
    const Json& definition = value_of(special_tokens, key.c_str());
    const Json& ids = definition.is_object() ? value_of(definition, "ids") : definition;
    if (!ids.is_array() || ids.empty() || ids.size() > 16) {
      return corrupt(
          fmt::format("post_processor.special_tokens has no ids for '{}'", printable_excerpt(key)));
    }
    for (const Json& id : ids) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= tables_->entries.size() ||
          !tables_->has(static_cast<TokenId>(id.get<uint64_t>()))) {
        return corrupt(fmt::format("post_processor.special_tokens: an id of '{}' is no token",
                                   printable_excerpt(key)));
      }
      out.push_back(static_cast<TokenId>(id.get<uint64_t>()));
    }
    return Status::ok();
  }

  Result<BpeMerge> resolve_merge(size_t index, std::string& key) const {
    const auto& [left, right] = raw_.merges[index];
    const auto id_of = [this](const std::string& spelling) {
      const auto found = tables_->ids_by_spelling.find(spelling);
      return found == tables_->ids_by_spelling.end() ? TokenId{-1} : found->second;
    };
    key.assign(left).append(right);
    const BpeMerge merge{id_of(left), id_of(right), id_of(key)};
    for (const auto& [id, spelling] :
         {std::pair(merge.left, &left), std::pair(merge.right, &right),
          std::pair(merge.merged, static_cast<const std::string*>(&key))}) {
      if (id < 0) {
        return corrupt(
            fmt::format("model.merges: entry {} needs the token '{}', which model.vocab "
                        "lacks",
                        index, printable_excerpt(*spelling)));
      }
    }
    return merge;
  }

  Status build_model() {
    std::array<TokenId, 256> byte_ids{};
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      const std::string spelling = spelling_of_bytes(std::string_view(&c, 1));
      const auto found = tables_->ids_by_spelling.find(spelling);
      const bool exists = found != tables_->ids_by_spelling.end();
      byte_ids[static_cast<size_t>(byte)] = exists ? found->second : -1;
      if (!exists && occurs_in_utf8(byte)) {
        return unsupported(
            fmt::format("model.vocab has no token for byte {:02X} ('{}'); only "
                        "complete byte-level vocabularies are supported",
                        byte, spelling));
      }
    }
    std::vector<BpeMerge> merges;
    merges.reserve(raw_.merges.size());
    std::string key;
    for (size_t i = 0; i < raw_.merges.size(); ++i) {
      MOTLEY_ASSIGN_OR_RETURN(const BpeMerge merge, resolve_merge(i, key));
      merges.push_back(merge);
    }
    std::vector<BpeToken> tokens;
    tokens.reserve(model_tokens_.size());
    for (const auto& [entry, id] : model_tokens_) {
      tokens.push_back({std::string_view(tables_->bytes).substr(entry.offset, entry.length), id});
    }
    const Json& ignore = value_of(raw_.rest["model"], "ignore_merges");
    tables_->model = BpeModel(byte_ids, merges, tokens, ignore == true);
    return Status::ok();
  }

  RawTokenizer raw_;
  std::unique_ptr<Tokenizer::Tables> tables_;
  // Tokens whose spelling is of the byte alphabet, as read: an added token may change the entry.
  std::vector<std::pair<TokenEntry, TokenId>> model_tokens_;
};

Result<Tokenizer> Tokenizer::parse(std::string_view json) {
  MOTLEY_ASSIGN_OR_RETURN(RawTokenizer raw, read_tokenizer_json(json));
  return TokenizerLoader(std::move(raw)).run();
}

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  FaultPoints faults;
  MOTLEY_ASSIGN_OR_RETURN(const File file, File::open(faults, path));
  MOTLEY_ASSIGN_OR_RETURN(const std::string json,
                          file.read_text(static_cast<int64_t>(kMaxTokenizerJsonBytes)));
  Result<Tokenizer> tokenizer = parse(json);
  if (!tokenizer.is_ok()) return tokenizer.status().with_context(path);
  return tokenizer;
}

}  // namespace motley
