// What happens to the matches of a pattern when a piece is split at them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/pre_tokenizer.h"

namespace cadre::text {

enum class Behavior : std::uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

std::optional<Behavior> behavior_from_name(std::string_view name);

// Splits `piece` at `matches` (inside it, from left to right) and appends the new pieces, none of them empty. With
// `invert`, what lies between the matches is what counts as matched.
void split_piece(Span piece, const std::vector<Span>& matches, Behavior behavior, bool invert, std::vector<Span>& out);

// Splits every piece. `find(span, matches)` appends the matches in one piece and returns a Status.
template <class Find>
Status split_pieces(Pieces& pieces, Behavior behavior, bool invert, SplitScratch& scratch, Find find) {
  scratch.spans.clear();
  for (const Span piece : pieces.spans) {
    scratch.matches.clear();
    if (Status status = find(piece, scratch.matches); !status.ok()) return status;
    split_piece(piece, scratch.matches, behavior, invert, scratch.spans);
  }
  pieces.spans.swap(scratch.spans);
  return {};
}

}  // namespace cadre::text
