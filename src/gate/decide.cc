#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/nearest.h"
#include "gate/gate.h"

namespace cadre::gate_internal {

std::string reasons(const std::vector<Refusal>& refusals) {
  std::string text;
  for (const Refusal& refusal : refusals) text += (text.empty() ? "" : "; ") + message(refusal);
  return text;
}

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Predicted microseconds; kNever where the backend's model has no answer, so that it comes after those that have one.
double time_of(const Candidate& c, int tokens) {
  const auto at = c.predicted_us.find(tokens);
  return at == c.predicted_us.end() ? kNever : at->second;
}

// Weighted mean, over the token mix, of a candidate's time over the best admitted time at each count. Counts at which
// no admitted backend has a prediction say nothing.
std::vector<double> relative_times(const std::vector<Candidate>& candidates,
                                   const std::vector<std::pair<int, double>>& mix) {
  std::vector<double> relative(candidates.size(), 0.0);
  double total = 0;
  for (const auto& [tokens, share] : mix) {
    double best = kNever;
    for (const Candidate& c : candidates) {
      if (c.admitted) best = std::min(best, time_of(c, tokens));
    }
    if (best == kNever || share <= 0) continue;
    for (std::size_t i = 0; i < candidates.size(); ++i) relative[i] += share * time_of(candidates[i], tokens) / best;
    total += share;
  }
  for (double& r : relative) r = total > 0 ? r / total : 1.0;
  return relative;
}

// Refused for what the layer or the deployment asks, and not for the machine: what could have been.
bool could_run_here(const Candidate& c) {
  return std::none_of(c.refusals.begin(), c.refusals.end(),
                      [](const Refusal& r) { return reason_info(r.code).about_device; });
}

constexpr double kTie = 1.05;  // within 5 % the list's order decides: the cost model is not better than that

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

std::string reasons_of(const Candidate& c) { return gate_internal::reasons(c.refusals); }

std::string times(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1fx", factor);
  return text;
}

}  // namespace

Status check_names(const Policy& policy, const std::vector<std::string>& known) {
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (std::find(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(i), known[i]) !=
        known.begin() + static_cast<std::ptrdiff_t>(i)) {
      return error(Code::kInvalidArgument, "two backends are called '", known[i], "', want a name for each");
    }
  }
  for (const std::string& name : policy.names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string hint = nearest_hint(name, known);
    return error(Code::kInvalidArgument, policy.origin, ": unknown backend '", name, "'", hint,
                 hint.empty() ? ", want one of: " : " (known: ", join(known, ", "), hint.empty() ? "" : ")");
  }
  return {};
}

Result<std::size_t> decide(Selection& selection, const std::vector<std::pair<int, double>>& mix) {
  std::vector<Candidate>& candidates = selection.candidates;
  const Policy& policy = selection.policy;
  const auto named = [&](const Candidate& c) {
    return std::find(policy.names.begin(), policy.names.end(), c.backend) != policy.names.end();
  };
  if (policy.kind == PolicyKind::kExclude) {
    for (Candidate& c : candidates) {
      if (!named(c)) continue;
      c.refusals.push_back(
          {Reason::kExcluded, "exclude " + c.backend + " (" + policy.origin + ")", "one that allows it"});
      c.admitted = false;
    }
  }
  const std::vector<double> relative = relative_times(candidates, mix);

  std::optional<std::size_t> fastest, chosen;
  double least = kNever;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].admitted) least = std::min(least, relative[i]);
  }
  for (std::size_t i = 0; i < candidates.size() && !fastest; ++i) {
    if (candidates[i].admitted && relative[i] <= least * kTie) fastest = i;
  }
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if ((policy.kind == PolicyKind::kRequire || policy.kind == PolicyKind::kPrefer) && named(candidates[i]) &&
        candidates[i].admitted) {
      chosen = i;
    }
  }
  if (!chosen && policy.kind == PolicyKind::kPrefer && fastest) {
    for (const Candidate& c : candidates) {
      if (named(c)) {
        selection.warnings.push_back("preferred backend " + c.backend + " (" + policy.origin + ") is refused, using " +
                                     candidates[*fastest].backend + " instead: " + reasons_of(c));
      }
    }
  }
  if (!chosen && policy.kind != PolicyKind::kRequire) chosen = fastest;

  Status failure;
  if (!chosen) {
    std::vector<std::string> refused, admitted;
    for (const Candidate& c : candidates) {
      if (c.admitted) admitted.push_back(c.backend);
      if (!c.admitted && (policy.kind != PolicyKind::kRequire || named(c)))
        refused.push_back(c.backend + ": " + reasons_of(c));
    }
    failure = policy.kind == PolicyKind::kRequire
                  ? error(Code::kNoBackend, "required backend (", policy.origin, ") is refused: ", join(refused, " | "),
                          "; admitted here: ", admitted.empty() ? "none" : join(admitted, ", "))
                  : error(Code::kNoBackend, "no backend admits this layer: ", join(refused, " | "));
  } else {
    // The price of a fallback: how much slower than the fastest one that was refused.
    std::optional<std::size_t> refused;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].admitted || relative[i] == kNever || !could_run_here(candidates[i])) continue;
      if (!refused || relative[i] < relative[*refused]) refused = i;
    }
    if (refused && relative[*chosen] != kNever && relative[*chosen] > relative[*refused] * kTie) {
      selection.warnings.push_back(candidates[*chosen].backend + " instead of " + candidates[*refused].backend +
                                   ", predicted " + times(relative[*chosen] / relative[*refused]) +
                                   " slower than the fastest refused (" + reasons_of(candidates[*refused]) + ")");
    }
    selection.chosen = candidates[*chosen].backend;
  }

  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto key = [&](std::size_t i) {
      return std::tuple(chosen && i == *chosen ? 0 : candidates[i].admitted ? 1 : 2, relative[i], i);
    };
    return key(a) < key(b);
  });
  std::vector<Candidate> sorted;
  sorted.reserve(order.size());
  for (const std::size_t i : order) sorted.push_back(std::move(candidates[i]));
  candidates = std::move(sorted);
  if (!chosen) return failure;
  return *chosen;
}

}  // namespace cadre::gate_internal
