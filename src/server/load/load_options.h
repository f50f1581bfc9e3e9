// What `cadre bench serve` is to send, and where.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cadre::server {

struct IntRange {
  int min = 0, max = 0;  // both included, each number as likely
};

// A model or adapter, by the name that requests give.
struct LoadTarget {
  std::string name;
  double share = 1;  // of the requests, among the shares of all
};

// Limits in milliseconds that a good request keeps; 0: not looked at.
struct Goodput {
  double ttft_ms = 0, tpot_ms = 0, e2el_ms = 0;
  bool any() const { return ttft_ms > 0 || tpot_ms > 0 || e2el_ms > 0; }
};

struct LoadOptions {
  std::string base_url = "http://127.0.0.1:8000";
  std::string api_key;              // empty: none is sent
  std::vector<LoadTarget> targets;  // at least one
  bool chat = true;                 // /v1/chat/completions, otherwise /v1/completions
  int max_concurrency = 0;          // requests under way; 0: no limit. At least one of it and request_rate is given
  double request_rate = 0;          // a second, as a Poisson process; 0: each as soon as max_concurrency allows
  std::int64_t num_prompts = 0;     // to send; 0: until duration_s is over
  double duration_s = 0;            // send nothing after this; 0: until num_prompts are sent
  double timeout_s = 300;           // of one request
  IntRange input_len{64, 64}, output_len{32, 32};
  std::string prompts_file;  // JSON lines; empty: random words
  bool ignore_eos = false;
  double temperature = -1;  // below 0: the model's own
  std::uint64_t seed = 0;   // of arrivals, targets, lengths and words
  Goodput goodput;
};

}  // namespace cadre::server
