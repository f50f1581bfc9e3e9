// Points of the space that the gate decides over: published layers on known machines, changed in any dimension, and the
// edges of every record. The same points on every machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "moe/catalogue.h"

namespace cadre::test {

struct Point {
  LayerSpec spec;
  Deployment deployment;
};

// A backend and the record that its check reads.
struct Recorded {
  const MoeBackend* backend;
  const MoeRecord* record;
};
const std::vector<Recorded>& built_in_records();
const std::vector<Recorded>& all_records();  // those of the catalogue first

// On both sides of one numeric limit, with nothing else refused.
struct Edge {
  std::string field;
  Point point;
  bool admitted;
  Reason reason;  // where refused
};
std::vector<Edge> edges_of(const Recorded& r);

constexpr int kRandomPoints = 220'000;
Point random_point(int index);
// Edges of all records, then random points.
void for_each_point(const std::function<void(const Point&)>& f);

// The codes of all refusals, in order.
std::vector<Reason> codes_of(const std::vector<Refusal>& refusals);

}  // namespace cadre::test
