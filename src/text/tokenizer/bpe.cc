#include "text/tokenizer/bpe.h"

#include <algorithm>

#include "base/result.h"
#include "text/tokenizer/unicode.h"

namespace cadre::text {
namespace {

constexpr std::int32_t kGone = -2;
constexpr std::int32_t kEnd = -1;
constexpr std::uint32_t kNoRank = ~0U;
// Below this many characters scanning for the lowest rank beats a heap; words are nearly always below.
constexpr std::size_t kShort = 40;

}  // namespace

Status Bpe::add_merge(std::string_view left, std::string_view right) {
  const std::int32_t left_id = vocab_.find(left);
  const std::int32_t right_id = vocab_.find(right);
  if (left_id == Vocab::kNone || right_id == Vocab::kNone) {
    return error(Code::kInvalidFile, "merge ", merge_count_, " names token '",
                 (left_id == Vocab::kNone ? left : right).substr(0, 100), "', which is not in the vocabulary");
  }
  joined_.assign(left);
  joined_ += right;
  const std::int32_t id = vocab_.find(joined_);
  if (id == Vocab::kNone) {
    return error(Code::kInvalidFile, "merge ", merge_count_, " makes token '", joined_.substr(0, 100),
                 "', which is not in the vocabulary");
  }
  merges_.put(left_id, right_id, {merge_count_++, id});
  return {};
}

void Bpe::finish(BpeOptions options) {
  options_ = std::move(options);
  unk_id_ = options_.unk_token.empty() ? Vocab::kNone : vocab_.find(options_.unk_token);
  std::string text;
  for (std::uint32_t point = 0; point < kDirect; ++point) {
    text.clear();
    append_utf8(point, text);
    direct_[point] = vocab_.find(text);
  }
  static constexpr char kDigits[] = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte) {
    text = "<0x";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
    text += '>';
    byte_tokens_[byte] = vocab_.find(text);
  }
  joined_ = {};
}

std::int32_t Bpe::character_id(std::string_view character) const {
  if (character.size() <= 2) {
    std::size_t pos = 0;
    const std::uint32_t point = next_code_point(character, pos);
    if (point < kDirect) return direct_[point];
  }
  return vocab_.find(character);
}

// A pending unknown goes in before the next known character, and after any bytes of a fallback: their order in the
// files' own library, seen only where a vocabulary has some bytes and not others.
Status Bpe::split_characters(std::string_view piece, std::vector<std::int32_t>& ids) const {
  bool pending = false;
  for (std::size_t pos = 0; pos < piece.size();) {
    const std::string_view character = piece.substr(pos, utf8_length(piece[pos]));
    pos += character.size();
    const std::int32_t id = character_id(character);
    if (id != Vocab::kNone) {
      if (pending) ids.push_back(unk_id_);
      pending = false;
      ids.push_back(id);
      continue;
    }
    if (options_.byte_fallback) {
      const auto token = [&](char c) { return byte_tokens_[static_cast<unsigned char>(c)]; };
      if (std::all_of(character.begin(), character.end(), [&](char c) { return token(c) != Vocab::kNone; })) {
        for (const char c : character) ids.push_back(token(c));
        continue;
      }
    }
    if (options_.unk_token.empty()) continue;
    if (unk_id_ == Vocab::kNone) {
      return error(Code::kInvalidFile, "the text has '", character, "', which has no token, and model.unk_token '",
                   options_.unk_token.substr(0, 100), "' is not in the vocabulary");
    }
    if (pending && !options_.fuse_unk) ids.push_back(unk_id_);
    pending = true;
  }
  if (pending) ids.push_back(unk_id_);
  return {};
}

Status Bpe::encode(std::string_view piece, BpeScratch& scratch, std::vector<std::int32_t>& out) const {
  if (piece.empty()) return {};
  BpeScratch::Slot* slot = nullptr;
  if (piece.size() <= BpeScratch::kKeyBytes) {
    slot = &scratch.cache_[hash_bytes(piece, scratch.seed_) & (BpeScratch::kSlots - 1)];
    if (slot->key_size == piece.size() && std::equal(piece.begin(), piece.end(), slot->key.begin())) {
      out.insert(out.end(), slot->ids.begin(), slot->ids.begin() + slot->id_count);
      return {};
    }
  }
  std::vector<std::int32_t>& ids = scratch.ids_;
  ids.clear();
  if (const std::int32_t whole = options_.ignore_merges ? vocab_.find(piece) : Vocab::kNone; whole != Vocab::kNone) {
    ids.push_back(whole);
  } else {
    CADRE_TRY(split_characters(piece, ids));
    if (ids.size() <= kShort) {
      merge_short(scratch);
    } else {
      merge_long(scratch);
    }
  }
  out.insert(out.end(), ids.begin(), ids.end());
  if (slot != nullptr && ids.size() <= BpeScratch::kIds) {
    slot->key_size = static_cast<std::uint8_t>(piece.size());
    slot->id_count = static_cast<std::uint8_t>(ids.size());
    std::copy(piece.begin(), piece.end(), slot->key.begin());
    std::copy(ids.begin(), ids.end(), slot->ids.begin());
  }
  return {};
}

void Bpe::merge_short(BpeScratch& scratch) const {
  std::vector<std::int32_t>& ids = scratch.ids_;
  std::vector<std::uint32_t>& ranks = scratch.ranks_;  // of the pair that begins here
  auto rank = [&](std::size_t i) {
    const PairMap::Merge* merge = merges_.find(ids[i], ids[i + 1]);
    return merge == nullptr ? kNoRank : merge->rank;
  };
  if (ids.size() < 2) return;
  ranks.resize(ids.size() - 1);
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = rank(i);
  while (!ranks.empty()) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNoRank) return;
    const auto i = static_cast<std::size_t>(best - ranks.begin());
    ids[i] = merges_.find(ids[i], ids[i + 1])->id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(best);
    if (i > 0) ranks[i - 1] = rank(i - 1);
    if (i < ranks.size()) ranks[i] = rank(i);
  }
}

void Bpe::merge_long(BpeScratch& scratch) const {
  using Symbol = BpeScratch::Symbol;
  using Candidate = BpeScratch::Candidate;
  std::vector<std::int32_t>& ids = scratch.ids_;
  std::vector<Symbol>& symbols = scratch.symbols_;
  std::vector<Candidate>& heap = scratch.heap_;
  const auto count = static_cast<std::int32_t>(ids.size());
  symbols.clear();
  heap.clear();
  for (std::int32_t i = 0; i < count; ++i) symbols.push_back({ids[i], i - 1, i + 1 < count ? i + 1 : kEnd});
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto propose = [&](std::int32_t at) {
    const PairMap::Merge* merge = merges_.find(symbols[at].id, symbols[symbols[at].next].id);
    if (merge == nullptr) return false;
    heap.push_back({merge->rank, at, merge->id});
    return true;
  };
  for (std::int32_t i = 0; i + 1 < count; ++i) propose(i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[top.at];
    if (left.next == kGone || left.next == kEnd) continue;
    // Either side may have changed since this was proposed.
    const PairMap::Merge* merge = merges_.find(left.id, symbols[left.next].id);
    if (merge == nullptr || merge->id != top.id) continue;
    Symbol& right = symbols[left.next];
    left.id = top.id;
    left.next = right.next;
    right.next = kGone;
    if (left.next != kEnd) {
      symbols[left.next].previous = top.at;
      if (propose(top.at)) std::push_heap(heap.begin(), heap.end(), later);
    }
    if (left.previous != kEnd && propose(left.previous)) std::push_heap(heap.begin(), heap.end(), later);
  }
  ids.clear();
  for (std::int32_t i = count == 0 ? kEnd : 0; i != kEnd; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace cadre::text
