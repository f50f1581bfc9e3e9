// What a cadre_engine handle is.
#pragma once

#include <cadre/cadre.h>
#include <cadre/engine.h>

#include <memory>
#include <vector>

struct cadre_engine {
  std::unique_ptr<cadre::Engine> engine;
  // What the last step lent: the events point into `brought`, the pointers into `events`.
  std::vector<cadre::Event> brought;
  std::vector<std::vector<cadre_token_chance>> logprobs;
  std::vector<cadre_event> events;
  std::vector<const cadre_event*> pointers;
};
