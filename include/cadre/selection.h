// Selection: which backend runs a layer, why every other one does not, and what the choice costs. One data structure
// behind the start-up log, `cadre explain`, JSON, error texts and metric labels.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <cadre/moe_spec.h>
#include <cadre/status.h>

namespace cadre {

// Every reason a backend can have to refuse. One message each, see reason_info.
enum class Reason : std::uint8_t {
  kNotInThisBuild,
  kDeviceAbsent,
  kDeviceKind,
  kInstructionSet,
  kComputeCapability,
  kActivationsElsewhere,
  kWeightType,
  kWeightScheme,
  kActivationType,
  kActivation,
  kNotGated,
  kGated,
  kActivationClamp,
  kActivationParameters,
  kExpertBias,
  kRouterBias,
  kRouting,
  kRouterLogitsType,
  kRouterWeightOnInput,
  kInterleavedGateUp,
  kTooManyExperts,
  kTopK,
  kHiddenSize,
  kIntermediateSize,
  kLatentSize,
  kAdapters,
  kAdapterRank,
  kAdapterCount,
  kAdapterLayout,
  kAdapterProjection,
  kAdapterSharding,
  kTensorParallel,
  kExpertParallel,
  kDataParallel,
  kSequenceParallel,
  kExpertRebalancing,
  kActivationFormat,
  kNotRepeatable,
  kNotIsolated,
  kNotBatchInvariant,
  kGraphCapture,
  kWorkspace,
  kExcluded,
  kRehearsal,
  kCount,  // number of reasons
};

struct ReasonInfo {
  std::string_view code;     // "intermediate_size", as in JSON and metric labels
  std::string_view subject;  // what `got` and `want` speak of: "the intermediate size on each rank"
  // The reason is the machine or the build, not the layer or what is asked of it: no change of the request helps, and
  // a prediction for such a backend is no price of a fallback.
  bool about_device = false;
};
CADRE_API const ReasonInfo& reason_info(Reason reason);

struct Refusal {
  Reason code = Reason::kCount;
  std::string got;
  std::string want;
  bool operator==(const Refusal&) const = default;
};
// "the intermediate size on each rank: got 192, want a multiple of 128"
CADRE_API std::string message(const Refusal& refusal);

enum class PolicyKind : std::uint8_t { kAuto, kRequire, kPrefer, kExclude };

// auto: the fastest admitted. require NAME: that one or an error. prefer NAME: that one where it is admitted, otherwise
// the fastest, with a warning. exclude NAME[,NAME]: the fastest of the others.
struct Policy {
  PolicyKind kind = PolicyKind::kAuto;
  std::vector<std::string> names;
  std::string origin = "default";  // where it was said: "default", "--backend", "CADRE_MOE_BACKEND", "config", "api"
  bool operator==(const Policy&) const = default;
};
// "auto", "NAME" or "require NAME" (or "require:NAME"), "prefer NAME", "exclude A,B".
CADRE_API Result<Policy> parse_policy(std::string_view text, std::string origin);
CADRE_API std::string to_string(const Policy& policy);

struct Candidate {
  std::string backend;
  std::string description;
  bool admitted = false;
  std::vector<Refusal> refusals;
  std::vector<Refusal> waived;         // build and device refusals, while planning for another machine
  std::map<int, double> predicted_us;  // by rows in one call; where the backend's model has an answer
  std::map<int, double> measured_us;   // at rehearsal, chosen backend only
  std::vector<std::string> remedies;   // what the backend does to fit, with its cost, e.g. padding
};

struct Selection {
  std::string chosen;  // empty: no backend
  Policy policy;
  std::vector<Candidate> candidates;  // chosen first, then admitted by predicted time, then refused
  std::vector<std::string> warnings;  // a preference not met, the price of a fallback
};

}  // namespace cadre
