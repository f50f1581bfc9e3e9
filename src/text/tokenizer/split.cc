#include "text/tokenizer/split.h"

namespace cadre::text {
namespace {

// Calls part(span, matched) for every match and every gap, from left to right.
template <class Part>
void each_part(Span piece, const std::vector<Span>& matches, bool invert, Part part) {
  std::uint32_t done = piece.begin;
  for (const Span match : matches) {
    if (done != match.begin) part(Span{done, match.begin}, invert);
    part(match, !invert);
    done = match.end;
  }
  if (done != piece.end) part(Span{done, piece.end}, invert);
}

}  // namespace

std::optional<Behavior> behavior_from_name(std::string_view name) {
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return std::nullopt;
}

void split_piece(Span piece, const std::vector<Span>& matches, Behavior behavior, bool invert, std::vector<Span>& out) {
  const std::size_t before = out.size();
  bool previous = false;  // whether the part before was matched
  each_part(piece, matches, invert, [&](Span part, bool matched) {
    bool join = false;  // with the part before
    switch (behavior) {
      case Behavior::kRemoved:
        if (matched) return;
        break;
      case Behavior::kIsolated:
        break;
      case Behavior::kMergedWithPrevious:
        join = matched && !previous;
        break;
      // Of matches in a row the last one joins what follows.
      case Behavior::kMergedWithNext:
        join = !matched && previous;
        break;
      case Behavior::kContiguous:
        join = matched == previous;
        break;
    }
    previous = matched;
    if (join && out.size() > before) {
      out.back().end = part.end;
    } else {
      out.push_back(part);
    }
  });
  // Empty matches leave empty pieces, which no later step should see.
  std::size_t kept = before;
  for (std::size_t i = before; i < out.size(); ++i) {
    if (out[i].begin != out[i].end) out[kept++] = out[i];
  }
  out.resize(kept);
}

}  // namespace cadre::text
