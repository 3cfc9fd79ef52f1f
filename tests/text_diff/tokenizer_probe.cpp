// tokenizer_probe TOKENIZER.json          reads texts from stdin, one a line in hexadecimal; writes
//                                         for each its ids, a tab, and their decoding in
//                                         hexadecimal
// tokenizer_probe TOKENIZER.json FILE     encodes the file repeatedly and prints the speed
#include <fmt/format.h>

#include <ctime>
#include <iostream>
#include <string>
#include <string_view>

#include "io/file.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace motley {
namespace {

int digit_value(char c) {
  return c <= '9' ? c - '0' : c - 'a' + 10;
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(digit_value(hex[i]) * 16 + digit_value(hex[i + 1]));
  }
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

// The decoding, after checking that the incremental detokenizer gives the same.
Result<std::string> decoded(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string whole = tokenizer.decode(ids, false);
  Detokenizer detokenizer(tokenizer, false);
  std::string pieces;
  for (const TokenId id : ids) pieces += detokenizer.push(id);
  pieces += detokenizer.finish();
  if (pieces != whole) return corrupt("the incremental decoding differs");
  return whole;
}

Status answer_lines(const Tokenizer& tokenizer) {
  std::string line;
  while (std::getline(std::cin, line)) {
    MOTLEY_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer.encode(from_hex(line)));
    MOTLEY_ASSIGN_OR_RETURN(const std::string text, decoded(tokenizer, ids));
    std::cout << fmt::format("{}\t{}\n", fmt::join(ids, " "), to_hex(text));
  }
  return Status::ok();
}

Status measure(const Tokenizer& tokenizer, const std::string& path) {
  // Processor time, so that a busy machine does not change the figure.
  const auto now = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  FaultPoints faults;
  MOTLEY_ASSIGN_OR_RETURN(const File file, File::open(faults, path));
  MOTLEY_ASSIGN_OR_RETURN(const std::string text, file.read_text(int64_t{1} << 30));
  const double start = now();
  double seconds = 0;
  size_t rounds = 0;
  size_t tokens = 0;
  while (rounds == 0 || seconds < 1.0) {
    MOTLEY_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer.encode(text));
    tokens = ids.size();
    ++rounds;
    seconds = now() - start;
  }
  const double bytes = static_cast<double>(rounds * text.size());
  std::cout << fmt::format("{} bytes, {} tokens, {:.1f} MB/s\n", text.size(), tokens,
                           bytes / seconds / 1e6);
  return Status::ok();
}

Status run(int argc, char** argv) {
  if (argc < 2) return invalid_argument("usage: tokenizer_probe TOKENIZER.json [FILE]");
  const std::clock_t start = std::clock();
  MOTLEY_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(argv[1]));
  if (argc == 2) return answer_lines(tokenizer);
  const double loading_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::cout << fmt::format("loaded in {:.3f} s\n", loading_s);
  return measure(tokenizer, argv[2]);
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  const motley::Status status = motley::run(argc, argv);
  if (status.is_ok()) return 0;
  std::cerr << status.message() << "\n";
  return 1;
}
