// The printable alphabet of byte-level BPE: 256 characters that stand for the 256 bytes in the
// token spellings of tokenizer.json ("Ġ" is a space).
//
// Source of the mapping: GPT-2's byte encoder. Bytes 21-7E, A1-AC and AE-FF stand for themselves;
// the other 68, in ascending order, are U+0100, U+0101, ...
// Thread rule: pure functions over a constant table.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace motley {

// The bytes that a spelling stands for; nothing when some character is not of the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

// The spelling of any bytes.
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace motley
