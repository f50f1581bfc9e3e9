// Whose turn it is among sequences.
#pragma once

#include <tuple>

#include "engine/sequence.h"

namespace cadre {

// Before others in every choice.
inline bool goes_before(const Sequence& a, const Sequence& b) {
  return std::tuple(a.ask().priority, a.flow->served, a.flow->running, a.id()) <
         std::tuple(b.ask().priority, b.flow->served, b.flow->running, b.id());
}

// Gives way before others.
inline bool yields_before(const Sequence& a, const Sequence& b) {
  return std::tuple(a.ask().priority, a.flow->served, a.admitted) >
         std::tuple(b.ask().priority, b.flow->served, b.admitted);
}

}  // namespace cadre
