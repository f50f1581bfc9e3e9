#include "engine/sequence.h"

#include <algorithm>

#include "base/result.h"
#include "engine/sampling/logprobs.h"
#include "engine/sampling/sampler.h"

namespace cadre {

Sequence::Sequence(std::uint64_t id, std::vector<std::int32_t> prompt, SamplingParams params, std::int64_t capacity,
                   std::shared_ptr<LoadedAdapter> adapter, const Tokenizer* tokenizer)
    : id_(id),
      ids_(std::move(prompt)),
      prompt_(static_cast<std::int64_t>(ids_.size())),
      capacity_(capacity),
      params_(std::move(params)),
      adapter_(std::move(adapter)),
      stops_(params_.stop, params_.include_stop) {
  history_.add_prompt(ids_);
  if (tokenizer != nullptr) decoder_.emplace(*tokenizer, /*skip_special_tokens=*/true);
}

FinishReason Sequence::after(std::int32_t token) const {
  const auto in = [&](const std::vector<std::int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (in(params_.stop_token_ids) || (!params_.ignore_eos && in(params_.eos_token_ids))) return FinishReason::kStop;
  if (static_cast<std::int64_t>(ids_.size()) >= capacity_) return FinishReason::kLength;
  return FinishReason::kNone;
}

Event Sequence::advance(std::span<float> logits) {
  Event event;
  event.request = id_;
  std::vector<float> raw;
  if (params_.logprobs) raw.assign(logits.begin(), logits.end());
  const Result<std::int32_t> token = sample(logits, params_, history_, ids_.size(), 0);
  if (!token.ok()) {
    event.finish = FinishReason::kError;
    event.error = token.status();
    return event;
  }
  if (params_.logprobs) {
    const Result<Logprobs> chances = token_logprobs(raw, *token, *params_.logprobs);
    if (chances.ok()) {
      event.logprobs.push_back({chances->chosen.id, chances->chosen.logprob});
      for (const TokenLogprob& top : chances->top) event.logprobs.push_back({top.id, top.logprob});
    }
  }
  event.token = *token;
  ids_.push_back(*token);
  history_.add_generated(*token);
  event.finish = after(*token);
  if (decoder_) {
    const bool may_stop = history_.generated() >= static_cast<std::uint64_t>(std::max(params_.min_tokens, 0));
    event.text = stops_.feed(decoder_->push(*token), may_stop);
    if (!stops_.stopped() && event.finish != FinishReason::kNone)
      event.text += stops_.feed(decoder_->flush(), may_stop);
    if (stops_.stopped()) {
      event.finish = FinishReason::kStop;
    } else if (event.finish != FinishReason::kNone) {
      event.text += stops_.flush();
    }
  }
  return event;
}

Event Sequence::finish(FinishReason reason) {
  Event event;
  event.request = id_;
  event.finish = reason;
  if (decoder_) {
    event.text = stops_.feed(decoder_->flush());
    event.text += stops_.flush();
  }
  return event;
}

}  // namespace cadre
