#include "engine/sequence.h"

#include <algorithm>

#include "base/result.h"
#include "engine/sampling/logprobs.h"
#include "engine/sampling/sampler.h"

namespace cadre {

Sequence::Sequence(Ask ask, const Tokenizer* tokenizer)
    : ask_(std::move(ask)),
      ids_(std::move(ask_.prompt)),
      prompt_(static_cast<std::int64_t>(ids_.size())),
      stops_(ask_.params.stop, ask_.params.include_stop) {
  arrived_ = std::chrono::steady_clock::now();
  history_.add_prompt(ids_);
  if (tokenizer != nullptr) decoder_.emplace(*tokenizer, /*skip_special_tokens=*/true);
  if (ask_.timeout_s > 0) {
    deadline_ = arrived_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                               std::chrono::duration<double>(ask_.timeout_s));
  }
}

void Sequence::mark_admitted(std::uint64_t order) {
  admitted = order;
  if (!queue_seconds_) {
    queue_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - arrived_).count();
  }
}

FinishReason Sequence::after(std::int32_t token) const {
  const auto in = [&](const std::vector<std::int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (in(ask_.params.stop_token_ids) || (!ask_.params.ignore_eos && in(ask_.params.eos_token_ids)))
    return FinishReason::kStop;
  if (static_cast<std::int64_t>(ids_.size()) >= ask_.capacity) return FinishReason::kLength;
  return FinishReason::kNone;
}

namespace {

// Of the chosen token, then of the most likely. Nothing where the row is not finite: sample says so.
std::vector<TokenChance> chances(std::span<const float> logits, std::int32_t token, std::int32_t count) {
  std::vector<TokenChance> out;
  const Result<Logprobs> all = token_logprobs(logits, token, count);
  if (!all.ok()) return out;
  out.push_back({all->chosen.id, all->chosen.logprob});
  for (const TokenLogprob& top : all->top) out.push_back({top.id, top.logprob});
  return out;
}

}  // namespace

void Sequence::see_prompt(std::int64_t at, std::span<const float> logits, std::int64_t vocab) {
  for (std::size_t row = 0; (row + 1) * static_cast<std::size_t>(vocab) <= logits.size() && at < prompt_; ++row, ++at) {
    // Computed again after it gave way: reported once.
    if (at != static_cast<std::int64_t>(prompt_chances_.size()) + 1) continue;
    prompt_chances_.push_back(
        chances(logits.subspan(row * static_cast<std::size_t>(vocab), static_cast<std::size_t>(vocab)),
                ids_[static_cast<std::size_t>(at)], *ask_.prompt_logprobs));
  }
}

Event Sequence::advance(std::span<float> logits) {
  Event event;
  event.request = id();
  std::vector<float> raw;
  if (ask_.params.logprobs) raw.assign(logits.begin(), logits.end());
  const Result<std::int32_t> token = sample(logits, ask_.params, history_, ids_.size(), ask_.choice);
  if (!token.ok()) {
    event.finish = FinishReason::kError;
    event.error = token.status();
    return event;
  }
  if (ask_.params.logprobs) event.logprobs = chances(raw, *token, *ask_.params.logprobs);
  if (!started()) {
    event.prompt_logprobs = std::move(prompt_chances_);
    event.cached_tokens = from_cache;
    event.queue_seconds = queue_seconds_.value_or(0);
  }
  event.token = *token;
  ids_.push_back(*token);
  history_.add_generated(*token);
  event.finish = after(*token);
  if (decoder_) {
    const bool may_stop = history_.generated() >= static_cast<std::uint64_t>(std::max(ask_.params.min_tokens, 0));
    event.text = stops_.feed(decoder_->push(*token), may_stop);
    if (!stops_.stopped() && event.finish != FinishReason::kNone)
      event.text += stops_.feed(decoder_->flush(), may_stop);
    if (stops_.stopped()) {
      event.finish = FinishReason::kStop;
      event.stop = stops_.matched();
    } else if (event.finish != FinishReason::kNone) {
      event.text += stops_.flush();
    }
  }
  return event;
}

Event Sequence::finish(FinishReason reason, Status why) {
  Event event;
  event.error = std::move(why);
  event.request = id();
  event.finish = reason;
  if (decoder_) {
    event.text = stops_.feed(decoder_->flush());
    event.text += stops_.flush();
  }
  return event;
}

}  // namespace cadre
