// PrefixCache: what was computed of earlier prompts and answers, page by page, for sequences that begin alike.
//
// A tree for each (adapter version, salt of the request, generation of the backends): a node is one full page of tokens
// after its parent's. Tokens are compared, not hashes of them, so nobody can make a collision. Recurrent layers cannot
// go back to an earlier position, so where a model has them a node is a place to start from only if it also has a
// snapshot of that state.
#pragma once

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/state_pool.h"

namespace cadre {

class PrefixCache {
 public:
  struct Key {
    std::uint64_t adapter_version = 0;  // 0: the base model
    std::string salt;
    std::uint64_t generation = 0;  // Model::generation
    auto operator<=>(const Key&) const = default;
  };
  struct Node;

  // The pool must stay where it is. `snapshots`: the model has recurrent layers.
  PrefixCache(StatePool& pool, bool snapshots);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Match {
    Node* at = nullptr;               // the caller stands there: leave() it, or go on with extend()
    std::vector<std::int32_t> pages;  // each held for the caller
    std::int32_t snapshot = -1;       // slot to copy the recurrent state from; -1: none is needed
    std::int64_t tokens = 0;          // = pages.size() * kPageSize
    std::int64_t common = 0;          // tokens that agree, also where no snapshot lets a sequence start
  };
  // The longest known beginning of `ids` of at most `most` tokens.
  Match find(const Key& key, std::span<const std::int32_t> ids, std::int64_t most);
  // Adds the page after `at`, holding kPageSize `tokens`, and steps there. Where that page is known already, the
  // caller's is given back and `*page` becomes the known one, held for it: two copies would keep memory that nobody can
  // free.
  Node* extend(Node* at, std::span<const std::int32_t> tokens, std::int32_t* page);
  void leave(Node* at);
  // Keeps a copy of the recurrent state in `slot`, which has seen exactly the tokens up to `at`.
  void keep_snapshot(const Exec& exec, Node* at, std::int32_t slot);

  // Gives up pages that nobody uses, least recently used first, until the pool has `pages` free ones or nothing is
  // left to give.
  void make_room(std::int64_t pages);
  // Drops everything of an adapter version that nobody stands on.
  void forget(std::uint64_t adapter_version);
  // Pages that only the cache holds.
  std::int64_t idle_pages() const;

 private:
  struct ChildKey {
    const Node* parent = nullptr;
    std::array<std::int32_t, kPageSize> tokens{};
    bool operator==(const ChildKey&) const = default;
  };
  struct ChildHash {
    std::size_t operator()(const ChildKey& key) const;
  };

  static ChildKey child_key(const Node* parent, std::span<const std::int32_t> tokens);
  Node* root(const Key& key);
  void enter(Node* node);
  void settle(Node* node);  // puts it among the idle leaves, where it is one
  void remove(Node* node);
  std::int32_t snapshot_slot();

  StatePool& pool_;
  bool snapshots_;
  std::uint64_t clock_ = 0;
  std::map<Key, std::unique_ptr<Node>> roots_;
  std::unordered_map<ChildKey, std::unique_ptr<Node>, ChildHash> nodes_;
  std::set<std::pair<std::uint64_t, Node*>> idle_leaves_;    // by last use
  std::set<std::pair<std::uint64_t, Node*>> with_snapshot_;  // by last use of the snapshot
};

}  // namespace cadre
