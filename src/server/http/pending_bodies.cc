#include "server/http/pending_bodies.h"

#include <algorithm>
#include <utility>

namespace cadre::server {

PendingBodies::PendingBodies(const HttpLimits& limits)
    : limit_(limits.max_pending_body_bytes),
      peer_limit_(limits.max_pending_body_bytes_per_peer > 0 ? limits.max_pending_body_bytes_per_peer
                                                             : std::max(limit_ / 4, limits.max_body_bytes)) {}

PendingBodies::Handle PendingBodies::begin(const std::string& peer, std::function<void()> give_up) {
  const auto of = peers_.try_emplace(peer).first;
  try {
    bodies_.push_back({of, 0, std::move(give_up)});
  } catch (...) {
    if (of->second.bodies == 0) peers_.erase(of);
    throw;
  }
  ++of->second.bodies;
  return std::prev(bodies_.end());
}

bool PendingBodies::grow(Handle body, std::size_t bytes) {
  Peer& peer = body->peer->second;
  bytes_ += bytes - body->bytes;
  peer.bytes += bytes - body->bytes;
  body->bytes = bytes;
  return make_room(body, true) && make_room(body, false);
}

bool PendingBodies::make_room(Handle body, bool of_its_peer) {
  const std::size_t used = of_its_peer ? body->peer->second.bytes : bytes_;
  const std::size_t limit = of_its_peer ? peer_limit_ : limit_;
  if (used <= limit) return true;
  // One that is large enough alone: many that have sent little do not pay for one that has sent much.
  const auto oldest = std::find_if(bodies_.begin(), body, [&](const Body& other) {
    return other.bytes >= used - limit && (!of_its_peer || other.peer == body->peer);
  });
  if (oldest == body) return false;
  const auto give_up = std::move(oldest->give_up);  // it outlives its entry
  give_up();
  return true;
}

void PendingBodies::end(Handle body) {
  Peer& peer = body->peer->second;
  bytes_ -= body->bytes;
  peer.bytes -= body->bytes;
  if (--peer.bodies == 0) peers_.erase(body->peer);
  bodies_.erase(body);
}

}  // namespace cadre::server
