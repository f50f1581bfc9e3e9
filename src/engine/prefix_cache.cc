#include "engine/prefix_cache.h"

#include <xxhash.h>

#include <algorithm>

#include "base/result.h"

namespace cadre {

struct PrefixCache::Node {
  Node* parent = nullptr;  // null: a root, which has no page
  Key key;                 // of a root
  ChildKey name;
  std::int32_t page = -1;
  int children = 0;
  int users = 0;  // who stands here
  std::uint64_t last_use = 0;
  std::int32_t snapshot = -1;
  std::uint64_t snapshot_use = 0;
};

std::size_t PrefixCache::ChildHash::operator()(const ChildKey& key) const {
  const auto seed = reinterpret_cast<std::uintptr_t>(key.parent);  // an address: not to be guessed from outside
  return static_cast<std::size_t>(XXH64(key.tokens.data(), sizeof key.tokens, seed));
}

PrefixCache::ChildKey PrefixCache::child_key(const Node* parent, std::span<const std::int32_t> tokens) {
  ChildKey key{.parent = parent};
  std::copy_n(tokens.begin(), kPageSize, key.tokens.begin());
  return key;
}

PrefixCache::PrefixCache(StatePool& pool, bool snapshots) : pool_(pool), snapshots_(snapshots) {}

PrefixCache::~PrefixCache() {
  for (const auto& [key, node] : nodes_) {
    pool_.drop(node->page);
    if (node->snapshot >= 0) pool_.give_snapshot_slot(node->snapshot);
  }
}

PrefixCache::Node* PrefixCache::root(const Key& key) {
  if (const auto known = roots_.find(key); known != roots_.end()) return known->second.get();
  auto node = std::make_unique<Node>();
  node->key = key;
  return roots_.emplace(key, std::move(node)).first->second.get();
}

void PrefixCache::enter(Node* node) {
  idle_leaves_.erase({node->last_use, node});
  ++node->users;
}

void PrefixCache::settle(Node* node) {
  if (node->users > 0 || node->children > 0) return;
  if (node->parent == nullptr) {
    roots_.erase(Key(node->key));  // a copy: the node goes with the entry
    return;
  }
  node->last_use = ++clock_;
  idle_leaves_.emplace(node->last_use, node);
}

void PrefixCache::leave(Node* at) {
  if (at == nullptr) return;
  CADRE_CHECK(at->users > 0, "nobody stands on this node");
  --at->users;
  settle(at);
}

PrefixCache::Match PrefixCache::find(const Key& key, std::span<const std::int32_t> ids, std::int64_t most) {
  Match match;
  std::vector<Node*> path{root(key)};
  const std::int64_t longest = std::min(most, static_cast<std::int64_t>(ids.size()));
  for (std::int64_t at = 0; at + kPageSize <= longest; at += kPageSize) {
    const auto it = nodes_.find(child_key(path.back(), ids.subspan(static_cast<std::size_t>(at), kPageSize)));
    if (it == nodes_.end()) break;
    path.push_back(it->second.get());
  }
  match.common = static_cast<std::int64_t>(path.size() - 1) * kPageSize;
  while (snapshots_ && path.size() > 1 && path.back()->snapshot < 0) path.pop_back();
  for (std::size_t i = 1; i < path.size(); ++i) {
    match.pages.push_back(path[i]->page);
    pool_.hold(path[i]->page);
  }
  match.at = path.back();
  match.tokens = static_cast<std::int64_t>(match.pages.size()) * kPageSize;
  if (match.at->snapshot >= 0) {
    match.snapshot = match.at->snapshot;
    with_snapshot_.erase({match.at->snapshot_use, match.at});
    match.at->snapshot_use = ++clock_;
    with_snapshot_.emplace(match.at->snapshot_use, match.at);
  }
  enter(match.at);
  return match;
}

PrefixCache::Node* PrefixCache::extend(Node* at, std::span<const std::int32_t> tokens, std::int32_t* page) {
  const ChildKey name = child_key(at, tokens);
  auto found = nodes_.find(name);
  if (found == nodes_.end()) {
    // Made first, so that running out of memory leaves the tree as it was.
    auto node = std::make_unique<Node>();
    node->parent = at;
    node->name = name;
    node->page = *page;
    found = nodes_.emplace(name, std::move(node)).first;
    pool_.hold(*page);
    ++at->children;
  }
  Node* child = found->second.get();
  if (child->page != *page) {
    pool_.hold(child->page);
    pool_.drop(*page);
    *page = child->page;
  }
  enter(child);
  --at->users;  // it has a child now, so it cannot be idle
  return child;
}

std::int32_t PrefixCache::snapshot_slot() {
  const std::int32_t slot = pool_.take_snapshot_slot();
  if (slot >= 0 || with_snapshot_.empty()) return slot;
  Node* oldest = with_snapshot_.begin()->second;
  with_snapshot_.erase(with_snapshot_.begin());
  return std::exchange(oldest->snapshot, -1);
}

void PrefixCache::keep_snapshot(const Exec& exec, Node* at, std::int32_t slot) {
  if (!snapshots_ || at->parent == nullptr || at->snapshot >= 0) return;
  const std::int32_t to = snapshot_slot();
  if (to < 0) return;
  pool_.copy_slot(exec, slot, to);
  at->snapshot = to;
  at->snapshot_use = ++clock_;
  with_snapshot_.emplace(at->snapshot_use, at);
}

void PrefixCache::remove(Node* node) {
  idle_leaves_.erase({node->last_use, node});
  pool_.drop(node->page);
  if (node->snapshot >= 0) {
    with_snapshot_.erase({node->snapshot_use, node});
    pool_.give_snapshot_slot(node->snapshot);
  }
  Node* parent = node->parent;
  nodes_.erase(ChildKey(node->name));  // a copy: the node goes with the entry
  --parent->children;
  settle(parent);
}

void PrefixCache::make_room(std::int64_t pages) {
  while (pool_.free_pages() < pages && !idle_leaves_.empty()) remove(idle_leaves_.begin()->second);
}

void PrefixCache::forget(std::uint64_t adapter_version) {
  const auto belongs = [&](const Node* node) {
    while (node->parent != nullptr) node = node->parent;
    return node->key.adapter_version == adapter_version;
  };
  // Removing a leaf can make its parent one, which then stands at the end.
  for (auto it = idle_leaves_.begin(); it != idle_leaves_.end();) {
    Node* node = it->second;
    ++it;
    if (!belongs(node)) continue;
    const bool at_end = it == idle_leaves_.end();
    remove(node);
    if (at_end && !idle_leaves_.empty() && belongs(idle_leaves_.rbegin()->second)) it = std::prev(idle_leaves_.end());
  }
}

std::int64_t PrefixCache::idle_pages() const {
  return std::count_if(nodes_.begin(), nodes_.end(),
                       [&](const auto& entry) { return pool_.holders(entry.second->page) == 1; });
}

}  // namespace cadre
