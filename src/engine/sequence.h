// Sequence: one request while it waits and runs.
#pragma once

#include <cadre/engine.h>

#include <chrono>
#include <span>

#include "base/result.h"
#include "engine/fair_share.h"
#include "engine/loaded_adapter.h"
#include "engine/prefix_cache.h"
#include "engine/prompts.h"
#include "engine/sampling/stop_checker.h"
#include "engine/sampling/token_history.h"
#include "engine/state_pool.h"

namespace cadre {

class Sequence {
 public:
  // What the request fixed.
  struct Ask {
    std::uint64_t id = 0;
    std::vector<std::int32_t> prompt;
    SamplingParams params;
    std::int64_t capacity = 0;  // tokens it may grow to
    AdapterRef adapter;         // null: the base model
    std::uint32_t choice = 0;
    std::optional<std::int32_t> prompt_logprobs;
    int priority = 0;
    std::string tenant, cache_salt;
    double timeout_s = 0;
  };
  // The tokenizer may be null: then events have no text.
  Sequence(Ask ask, const Tokenizer* tokenizer);

  std::uint64_t id() const { return ask_.id; }
  const Ask& ask() const { return ask_; }
  std::span<const std::int32_t> ids() const { return ids_; }
  // Tokens the model has not seen yet: the rest of the prompt, or the last drawn token. After it gave way, all of them.
  std::span<const std::int32_t> unseen() const {
    return std::span(ids_).subspan(static_cast<std::size_t>(state.length));
  }
  std::int64_t prompt_tokens() const { return prompt_; }
  // Of its adapter, which must be in one: -1 is the base model, and nothing else may become it.
  std::int32_t slot() const {
    if (ask_.adapter == nullptr) return -1;
    CADRE_CHECK(ask_.adapter->info.slot >= 0, "a sequence runs without its adapter");
    return ask_.adapter->info.slot;
  }
  bool started() const { return static_cast<std::int64_t>(ids_.size()) > prompt_; }  // has drawn a token
  bool late(std::chrono::steady_clock::time_point now) const { return deadline_ && now >= *deadline_; }
  // Whether the logits of the prompt's rows are wanted for those still to be computed.
  bool wants_prompt_logits() const { return ask_.prompt_logprobs && state.length < prompt_ && !started(); }

  // Reports the chances of the prompt's tokens `at`, `at` + 1, ... from the logits of the rows before them, [n, vocab].
  void see_prompt(std::int64_t at, std::span<const float> logits, std::int64_t vocab);
  // Draws the next token from its logits, which are overwritten, and says what that brings.
  Event advance(std::span<float> logits);
  // The last event of a sequence that is stopped from outside.
  Event finish(FinishReason reason, Status why = {});

  // The scheduler's.
  SequenceState state;
  bool cancelled = false;
  Flow* flow = nullptr;
  PrefixCache::Node* node = nullptr;      // the page up to which its tokens are in the prefix cache
  std::int64_t cached_pages = 0;          // up to there
  std::vector<std::int64_t> snapshot_at;  // lengths at which the recurrent state is kept, rising
  std::int64_t computed = 0;              // tokens whose state was computed or found at some time
  std::int64_t from_cache = 0;            // tokens of the prompt that were found there
  std::int64_t last_step = 0;             // in which it had rows
  std::uint64_t admitted = 0;             // order of admission
  void mark_admitted(std::uint64_t order);

 private:
  FinishReason after(std::int32_t token) const;

  Ask ask_;
  std::vector<std::int32_t> ids_;
  std::int64_t prompt_;
  std::chrono::steady_clock::time_point arrived_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::optional<double> queue_seconds_;
  TokenHistory history_;
  StopChecker stops_;
  std::optional<StreamDecoder> decoder_;
  std::vector<std::vector<TokenChance>> prompt_chances_;
};

}  // namespace cadre
