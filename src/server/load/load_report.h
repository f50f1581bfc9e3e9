// What a load measured: one record for each request, and the figures made of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/json.h"
#include "server/load/load_options.h"

namespace cadre::server {

// Times in seconds since the load began.
struct LoadRecord {
  std::size_t target = 0;  // index in LoadOptions::targets
  double due = 0;          // when the request was to be sent
  double sent = 0;
  double first = 0;              // first piece of the answer
  double last = 0;               // last piece of it
  std::vector<float> intervals;  // between one piece and the next
  std::int64_t prompt_tokens = 0, output_tokens = 0;
  bool counted_by_server = false;  // otherwise output_tokens is the number of pieces
  std::string error;               // empty: answered
  bool cancelled = false;          // by us: it is neither answered nor failed
};

struct Distribution {
  std::int64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
// Percentiles are interpolated between the two nearest values, as numpy does.
Distribution distribution(std::vector<double> values);

struct LoadFigures {
  std::string name;  // of a target; empty: all together
  std::int64_t answered = 0, failed = 0, cancelled = 0;
  std::int64_t prompt_tokens = 0, output_tokens = 0, uncounted = 0;  // answered requests without the server's count
  std::int64_t good = 0;                                             // within the limits of Goodput
  // Milliseconds. Inter-token: between the pieces of an answer. Per output token: the same over the tokens after the
  // first, which differs where a piece holds several.
  Distribution ttft, tpot, itl, e2el;
};

struct LoadReport {
  LoadOptions options;
  double seconds = 0;  // from the first request sent to the last piece of an answer
  LoadFigures all;
  std::vector<LoadFigures> targets;  // where there are several
  std::vector<std::string> errors;   // the first different ones, with how often
  double late_ms = 0;                // the 99th percentile of how much later than due requests were sent
  std::vector<std::string> notes;
  bool interrupted = false;
};

LoadReport make_report(const LoadOptions& options, const std::vector<LoadRecord>& records, bool interrupted);
// A table for people.
std::string to_text(const LoadReport& report);
Json to_json(const LoadReport& report);

}  // namespace cadre::server
