// Flags that several commands have: declaring them (add_...) and reading them (read_...).
#pragma once

#include <vector>

#include "cli/flags.h"
#include "cli/options.h"

namespace cadre::cli {

inline constexpr std::int64_t kMaxThreads = 1024;
// What EngineOptions takes at most.
inline constexpr std::int64_t kMaxSequences = 4096, kMaxLoras = 4096, kMaxLoraRank = 65'536;

void add_model(Flags& flags);
void add_overrides(Flags& flags);  // of the model's config.json
void add_adapters(Flags& flags);
void add_one_adapter(Flags& flags, const char* help);
// A command that compares with a fixed backend does not listen to the environment.
enum class PolicySource { kFlagAndEnvironment, kFlag };
void add_machine(Flags& flags, const char* default_policy, PolicySource source = PolicySource::kFlagAndEnvironment);
void add_limits(Flags& flags);
void add_start(Flags& flags);
void add_sampling(Flags& flags);

// A folder, or the one of a model in the Hugging Face cache.
Result<std::string> read_model(const Flags& flags, const Environment& environment);
// An object in JSON, or nothing.
Result<std::string> read_overrides(const Flags& flags);
Result<std::vector<AdapterSource>> read_adapters(const Flags& flags);
// The flag comes before the environment, and that before the command's default.
Result<Policy> read_policy(const Flags& flags, const Environment& environment, const char* otherwise);
// Of add_model and add_machine.
Result<EngineOptions> read_engine(const Flags& flags, const Environment& environment, const char* default_policy);
// Of add_limits and add_start.
Status read_limits(const Flags& flags, int default_sequences, EngineOptions* engine);
Result<SamplingRequest> read_sampling(const Flags& flags);

// `cadre explain`, in a file of its own.
void add_explain(Flags& flags);
Result<Command> read_explain(const Flags& flags, const Environment& environment);

}  // namespace cadre::cli
