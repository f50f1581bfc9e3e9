#include "server/access/limits.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>

namespace cadre::server {
namespace {

// Rounding of doubles must not refuse who waited exactly as long as was said.
constexpr double kSlack = 1e-6;

class Bucket {
 public:
  // Brings the level up to `now` for a limit of `per_minute`, which may have changed.
  void refill(double now, std::int64_t per_minute) {
    const double most = static_cast<double>(per_minute);
    if (fresh_) {
      level_ = most;
      fresh_ = false;
    } else {
      level_ = std::min(most, level_ + std::max(0.0, now - time_) * most / 60);
    }
    time_ = now;
  }
  bool has(double amount) const { return level_ + kSlack >= amount; }
  void take(double amount) { level_ -= amount; }
  // Seconds until `amount` is there.
  std::int64_t wait(double amount, std::int64_t per_minute) const {
    const double seconds = (amount - level_) * 60 / static_cast<double>(per_minute);
    return static_cast<std::int64_t>(std::clamp(std::ceil(seconds - kSlack), 1.0, 86'400.0));
  }

 private:
  bool fresh_ = true;
  double level_ = 0, time_ = 0;
};

struct Tenant {
  Bucket requests, tokens;
  std::int64_t running = 0;  // requests
};

Refusal too_many(std::string_view reason, std::string message, std::int64_t wait) {
  Refusal refusal;
  refusal.status = 429;
  refusal.type = "rate_limit_error";
  refusal.code = "rate_limit_exceeded";
  refusal.message = std::move(message) + "; try again in " + std::to_string(wait) + " s";
  refusal.retry_after_s = wait;
  refusal.reason = reason;
  return refusal;
}

}  // namespace

struct Limiter::State {
  LimiterOptions options;
  std::mutex mutex;
  std::map<std::string, Tenant, std::less<>> tenants;
  std::int64_t in_flight = 0;  // sequences
  double mean_seconds = 1;     // that a request takes, over some of the last ones
};

Limiter::Limiter(LimiterOptions options) : state_(std::make_shared<State>()) {
  options.max_running = std::max(1, options.max_running);
  options.max_queued = std::max(0, options.max_queued);
  options.reserved = std::clamp(options.reserved, 0, options.max_queued);
  if (!options.now) {
    options.now = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
  }
  state_->options = std::move(options);
}

std::variant<Limiter::Ticket, Refusal> Limiter::admit(const Caller& caller, int sequences) {
  State& state = *state_;
  sequences = std::max(1, sequences);
  const TenantLimits& limits = caller.grant->limits;
  const std::lock_guard lock(state.mutex);
  const double now = state.options.now();
  Tenant& tenant = state.tenants[caller.tenant()];

  if (limits.max_concurrency > 0 && tenant.running >= limits.max_concurrency) {
    const auto wait = static_cast<std::int64_t>(std::clamp(std::ceil(state.mean_seconds), 1.0, 60.0));
    return too_many("concurrency",
                    "this key's limit is " + std::to_string(limits.max_concurrency) + " requests at a time", wait);
  }
  // A request of more sequences than there are places goes through when nothing else is there, or it never would.
  const std::int64_t places = std::int64_t{state.options.max_running} + state.options.max_queued -
                              (tenant.running > 0 ? state.options.reserved : 0);
  if (state.in_flight > 0 && state.in_flight + sequences > places) {
    const double queued = static_cast<double>(std::max<std::int64_t>(1, state.in_flight - state.options.max_running));
    const double seconds = queued * state.mean_seconds / state.options.max_running;
    return too_many("queue_full", "the server has as many requests waiting as it takes",
                    static_cast<std::int64_t>(std::clamp(std::ceil(seconds), 1.0, 60.0)));
  }
  if (limits.requests_per_minute > 0) {
    tenant.requests.refill(now, limits.requests_per_minute);
    if (!tenant.requests.has(1)) {
      return too_many("requests_per_minute",
                      "this key's limit is " + std::to_string(limits.requests_per_minute) + " requests a minute",
                      tenant.requests.wait(1, limits.requests_per_minute));
    }
  }
  if (limits.tokens_per_minute > 0) {
    // Who is in debt, or will be with a prompt of one token, is told so before the prompt is looked at.
    tenant.tokens.refill(now, limits.tokens_per_minute);
    if (!tenant.tokens.has(1)) {
      return too_many("tokens_per_minute",
                      "this key's limit is " + std::to_string(limits.tokens_per_minute) + " tokens a minute",
                      tenant.tokens.wait(1, limits.tokens_per_minute));
    }
  }
  Ticket ticket;
  ticket.counted_ = limits.requests_per_minute > 0;
  if (ticket.counted_) tenant.requests.take(1);
  ++tenant.running;
  state.in_flight += sequences;
  ticket.state_ = state_;
  ticket.tenant_ = caller.tenant();
  ticket.limits_ = limits;
  ticket.sequences_ = sequences;
  ticket.since_ = now;
  return ticket;
}

void Limiter::retain(const std::vector<std::string>& tenants) {
  const std::lock_guard lock(state_->mutex);
  std::erase_if(state_->tenants, [&](const auto& item) {
    return item.second.running == 0 && std::find(tenants.begin(), tenants.end(), item.first) == tenants.end();
  });
}

int Limiter::in_flight() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<int>(std::min<std::int64_t>(state_->in_flight, std::numeric_limits<int>::max()));
}

std::size_t Limiter::tenants() const {
  const std::lock_guard lock(state_->mutex);
  return state_->tenants.size();
}

Limiter::Ticket& Limiter::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  release();
  state_ = std::move(other.state_);
  tenant_ = std::move(other.tenant_);
  limits_ = other.limits_;
  sequences_ = other.sequences_;
  charged_ = other.charged_;
  counted_ = other.counted_;
  since_ = other.since_;
  return *this;
}

std::optional<Refusal> Limiter::Ticket::charge_prompt(std::int64_t tokens) {
  tokens = std::max<std::int64_t>(0, tokens);
  const std::int64_t limit = limits_.tokens_per_minute;
  if (state_ == nullptr || limit <= 0) return std::nullopt;
  const std::lock_guard lock(state_->mutex);
  Tenant& tenant = state_->tenants[tenant_];
  const double amount = static_cast<double>(tokens);
  tenant.tokens.refill(state_->options.now(), limit);
  if (tenant.tokens.has(amount)) {
    tenant.tokens.take(amount);
    charged_ += tokens;
    return std::nullopt;
  }
  if (counted_) tenant.requests.take(-1);
  counted_ = false;
  const std::string what = "the prompt has " + std::to_string(tokens) + " tokens, this key's limit is " +
                           std::to_string(limit) + " a minute";
  if (tokens <= limit) return too_many("tokens_per_minute", what, tenant.tokens.wait(amount, limit));
  Refusal refusal;
  refusal.status = 400;
  refusal.type = "invalid_request_error";
  refusal.code = "prompt_over_token_limit";
  refusal.message = what;
  refusal.reason = "tokens_per_minute";
  return refusal;
}

void Limiter::Ticket::charge_generated(std::int64_t tokens) {
  const std::int64_t limit = limits_.tokens_per_minute;
  if (state_ == nullptr || limit <= 0 || tokens <= 0) return;
  const std::lock_guard lock(state_->mutex);
  Tenant& tenant = state_->tenants[tenant_];
  tenant.tokens.refill(state_->options.now(), limit);
  tenant.tokens.take(static_cast<double>(tokens));
  charged_ += tokens;
}

void Limiter::Ticket::take_back() {
  if (state_ == nullptr) return;
  const std::lock_guard lock(state_->mutex);
  Tenant& tenant = state_->tenants[tenant_];
  if (counted_) tenant.requests.take(-1);
  if (charged_ > 0) tenant.tokens.take(-static_cast<double>(charged_));
  counted_ = false;
  charged_ = 0;
}

void Limiter::Ticket::release() {
  if (state_ == nullptr) return;
  const std::shared_ptr<State> state = std::move(state_);
  state_ = nullptr;
  const std::lock_guard lock(state->mutex);
  --state->tenants[tenant_].running;
  state->in_flight -= sequences_;
  // The mean follows within some ten requests.
  state->mean_seconds += (std::max(0.0, state->options.now() - since_) - state->mean_seconds) / 10;
}

}  // namespace cadre::server
