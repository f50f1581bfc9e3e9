// One version of an adapter, wherever its content is: in a slot, in memory, or on disk.
#pragma once

#include <cadre/engine.h>

#include "engine/prompts.h"
#include "lora/canonical.h"

namespace cadre {

struct ReadAdapter {
  AdapterSource source;
  std::shared_ptr<const Adapter> adapter;
  Templates templates;  // of its folder, where it has any
  double seconds = 0;
};

// Requests hold it, so that a reload or unload never changes a running one; it goes with the last of them. Fields are
// written by the engine's thread only, under AdapterSet's mutex where other threads read them.
struct LoadedAdapter {
  AdapterSource source;
  AdapterInfo info;
  std::shared_ptr<const Adapter> adapter;  // null: on disk only
  Templates templates;
  int running = 0;  // sequences in the batch: while there are any, it keeps its slot
  std::uint64_t last_use = 0;
};

}  // namespace cadre
