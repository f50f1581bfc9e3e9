// Sequence: one request while it waits and runs.
#pragma once

#include <cadre/engine.h>

#include <span>

#include "engine/prompts.h"
#include "engine/sampling/stop_checker.h"
#include "engine/sampling/token_history.h"
#include "engine/state_pool.h"
#include "lora/canonical.h"

namespace cadre {

// An adapter in a slot. Requests hold it, so a reload or unload never changes a running one; the slot is freed with the
// last of them.
struct LoadedAdapter {
  AdapterInfo info;
  std::shared_ptr<const Adapter> adapter;
};

class Sequence {
 public:
  Sequence(std::uint64_t id, std::vector<std::int32_t> prompt, SamplingParams params, std::int64_t capacity,
           std::shared_ptr<LoadedAdapter> adapter, const Tokenizer* tokenizer);

  std::uint64_t id() const { return id_; }
  // Tokens the model has not seen yet: the rest of the prompt, or the last drawn token.
  std::span<const std::int32_t> unseen() const {
    return std::span(ids_).subspan(static_cast<std::size_t>(state.length));
  }
  std::int64_t prompt_tokens() const { return prompt_; }
  std::int64_t capacity() const { return capacity_; }  // tokens it may grow to
  std::int32_t slot() const { return adapter_ == nullptr ? -1 : adapter_->info.slot; }
  const std::shared_ptr<LoadedAdapter>& adapter() const { return adapter_; }

  // Draws the next token from its logits, which are overwritten, and says what that brings.
  Event advance(std::span<float> logits);
  // The last event of a sequence that is stopped from outside.
  Event finish(FinishReason reason);

  SequenceState state;
  bool cancelled = false;

 private:
  FinishReason after(std::int32_t token) const;

  std::uint64_t id_;
  std::vector<std::int32_t> ids_;
  std::int64_t prompt_, capacity_;
  SamplingParams params_;
  std::shared_ptr<LoadedAdapter> adapter_;
  TokenHistory history_;
  StopChecker stops_;
  std::optional<StreamDecoder> decoder_;
};

}  // namespace cadre
