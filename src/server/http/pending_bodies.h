// PendingBodies: how much of request bodies is in memory before a handler has seen it, of each peer and of all, and who
// has to go when it is too much. No sockets.
//
// Whoever sends slowly, or stops just before the end, must not keep the others out. So where there is no room for a
// body that grows, the one that has been arriving the longest gives up, if that makes room; a body that no older one
// can make room for is refused itself.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <unordered_map>

#include "server/http/http_server.h"

namespace cadre::server {

class PendingBodies {
 private:
  struct Peer {
    std::size_t bytes = 0;
    int bodies = 0;
  };
  struct Body {
    std::unordered_map<std::string, Peer>::iterator peer;
    std::size_t bytes = 0;
    std::function<void()> give_up;
  };

 public:
  using Handle = std::list<Body>::iterator;

  explicit PendingBodies(const HttpLimits& limits);

  // A body begins to arrive from a peer, whatever text names it. `give_up` lets go of its memory and calls end() before
  // it returns.
  Handle begin(const std::string& peer, std::function<void()> give_up);
  // So much of it is here now. False: there is no room for it; it is still counted until end().
  bool grow(Handle body, std::size_t bytes);
  void end(Handle body);

  std::size_t bytes() const { return bytes_; }
  std::size_t peers() const { return peers_.size(); }

 private:
  bool make_room(Handle body, bool of_its_peer);

  std::size_t limit_, peer_limit_;
  std::size_t bytes_ = 0;
  std::list<Body> bodies_;  // in the order in which they began
  std::unordered_map<std::string, Peer> peers_;
};

}  // namespace cadre::server
