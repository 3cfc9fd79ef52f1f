// "Did you mean": the known name closest to a mistyped one.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace motley {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);

// The closest of `known` (the first among equals) when it is close enough to be meant: at most a
// third of the letters differ.
std::optional<std::string> closest_name(std::string_view name, std::span<const std::string> known);

// "; did you mean X?" or "".
std::string suggestion_for(std::string_view name, std::span<const std::string> known);

}  // namespace motley
