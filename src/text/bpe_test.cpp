#include "text/bpe.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace motley {
namespace {

// A model over bytes built from merges of byte strings; token i of a byte is its value.
struct Fixture {
  std::vector<std::string> spellings;
  std::map<std::string, TokenId> ids;
  std::vector<BpeMerge> merges;
  BpeModel model;

  explicit Fixture(const std::vector<std::pair<std::string, std::string>>& pairs,
                   bool ignore_merges = false, const std::vector<std::string>& extra = {}) {
    std::array<TokenId, 256> byte_ids{};
    for (int byte = 0; byte < 256; ++byte) {
      byte_ids[static_cast<size_t>(byte)] = byte;
      add(std::string(1, static_cast<char>(byte)));
    }
    for (const auto& [left, right] : pairs) {
      add(left + right);
      merges.push_back({ids.at(left), ids.at(right), ids.at(left + right)});
    }
    for (const std::string& token : extra) add(token);
    std::vector<BpeToken> tokens;
    for (const auto& [text, id] : ids) tokens.push_back({text, id});
    model = BpeModel(byte_ids, merges, tokens, ignore_merges);
  }

  void add(const std::string& text) {
    if (ids.emplace(text, static_cast<TokenId>(spellings.size())).second) spellings.push_back(text);
  }

  std::vector<TokenId> encode(const std::string& word) const {
    BpeModel::Scratch scratch;
    std::vector<TokenId> out;
    model.encode(word, scratch, out);
    return out;
  }

  // The definition, in quadratic time: merge the first pair of the lowest rank, repeat.
  std::vector<TokenId> naive(const std::string& word) const {
    std::vector<TokenId> out;
    for (const char c : word) out.push_back(static_cast<unsigned char>(c));
    while (true) {
      size_t best_rank = merges.size();
      size_t best_at = 0;
      for (size_t at = 0; at + 1 < out.size(); ++at) {
        for (size_t rank = 0; rank < best_rank; ++rank) {
          if (merges[rank].left == out[at] && merges[rank].right == out[at + 1]) {
            best_rank = rank;
            best_at = at;
          }
        }
      }
      if (best_rank == merges.size()) return out;
      out[best_at] = merges[best_rank].merged;
      out.erase(out.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
    }
  }
};

TEST(Bpe, LowestRankFirstThenLeftmost) {
  const Fixture f({{"b", "c"}, {"a", "b"}, {"a", "a"}, {"aa", "a"}});
  EXPECT_EQ(f.encode("abc"), (std::vector<TokenId>{'a', f.ids.at("bc")}));
  EXPECT_EQ(f.encode("aaa"), (std::vector<TokenId>{f.ids.at("aaa")}));
  EXPECT_EQ(f.encode("aaaa"), (std::vector<TokenId>{f.ids.at("aa"), f.ids.at("aa")}));
  EXPECT_TRUE(f.encode("").empty());
}

TEST(Bpe, IgnoreMergesTakesWholeWords) {
  const Fixture plain({{"a", "b"}}, false, {"abab"});
  const Fixture ignoring({{"a", "b"}}, true, {"abab"});
  EXPECT_EQ(plain.encode("abab"), (std::vector<TokenId>{256, 256}));
  EXPECT_EQ(ignoring.encode("abab"), (std::vector<TokenId>{ignoring.ids.at("abab")}));
  EXPECT_EQ(ignoring.encode("ababab"), (std::vector<TokenId>{256, 256, 256}));
}

TEST(Bpe, ATokenThatItsMergesMissIsNotAShortCut) {
  // "abc" exists, but its bytes merge to "a" + "bc" and stop there.
  const Fixture f({{"b", "c"}, {"a", "b"}, {"ab", "c"}});
  EXPECT_EQ(f.encode("abc"), f.naive("abc"));
  EXPECT_EQ(f.encode("abc"), (std::vector<TokenId>{'a', f.ids.at("bc")}));
}

TEST(Bpe, TheLastOfRepeatedMergesCounts) {
  const Fixture f({{"a", "b"}, {"b", "c"}, {"a", "b"}});
  EXPECT_EQ(f.encode("abc"), (std::vector<TokenId>{'a', f.ids.at("bc")}));
}

RC_GTEST_PROP(Bpe, AgreesWithTheDefinition, ()) {
  // Random merges over three letters, each from tokens that exist by then.
  std::vector<std::string> tokens = {"a", "b", "c"};
  std::vector<std::pair<std::string, std::string>> pairs;
  for (int i = *rc::gen::inRange(0, 14); i > 0; --i) {
    const std::string left = *rc::gen::elementOf(tokens);
    const std::string right = *rc::gen::elementOf(tokens);
    const bool is_new = std::find(tokens.begin(), tokens.end(), left + right) == tokens.end();
    if (!is_new) continue;
    pairs.emplace_back(left, right);
    tokens.push_back(left + right);
  }
  const Fixture f(pairs);
  // Both the scan for short words and the heap for long ones.
  const size_t length = *rc::gen::inRange<size_t>(0, 200);
  const auto word =
      *rc::gen::container<std::string>(length, rc::gen::elementOf(std::string("abc")));
  RC_ASSERT(f.encode(word) == f.naive(word));
}

TEST(Bpe, AMegabyteOfOneLetterIsFast) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (size_t n = 1; n <= 64; n *= 2) pairs.emplace_back(std::string(n, 'a'), std::string(n, 'a'));
  const Fixture f(pairs);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<TokenId> ids = f.encode(std::string(1 << 20, 'a'));
  // A quadratic search would take hours; the bound leaves room for slow, shared machines.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(ids, std::vector<TokenId>(1 << 13, f.ids.at(std::string(128, 'a'))));
}

}  // namespace
}  // namespace motley
