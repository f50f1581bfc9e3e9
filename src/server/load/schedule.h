// Random choices of a load: when each request comes, for which target, how long. The same seed makes the same load with
// every compiler, so the distributions are written out here.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "server/load/load_options.h"

namespace cadre::server {

class LoadRandom {
 public:
  explicit LoadRandom(std::uint64_t seed) : engine_(seed) {}
  double uniform();                          // in [0, 1)
  std::uint64_t below(std::uint64_t count);  // in [0, count); count is at least 1
  int in(const IntRange& range);

 private:
  std::mt19937_64 engine_;
};

// Arrivals of a Poisson process.
class Arrivals {
 public:
  Arrivals(double rate, std::uint64_t seed) : rate_(rate), random_(seed) {}
  double next();  // seconds since the start; grows

 private:
  double rate_, at_ = 0;
  LoadRandom random_;
};

// Index of a target, each as often as its share says.
std::size_t pick_target(const std::vector<LoadTarget>& targets, LoadRandom& random);

}  // namespace cadre::server
