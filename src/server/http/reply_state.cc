#include "server/http/reply_state.h"

#include <utility>

namespace cadre::server {
namespace {

// What a handler hands over must not end the server's thread.
void call_safely(const std::function<void()>& call) {
  if (!call) return;
  try {
    call();
  } catch (...) {  // NOLINT(bugprone-empty-catch): it is told of a client that is gone; there is nobody to answer
  }
}

int valid_status(int status) { return status >= 200 && status <= 599 ? status : 500; }

}  // namespace

void ReplyState::wake(std::unique_lock<std::mutex>& lock) {
  const bool first = !std::exchange(wake_pending_, true);
  lock.unlock();
  if (!first) return;
  try {
    wake_();
  } catch (...) {  // out of memory: the next call tries again
    const std::lock_guard again(mutex_);
    wake_pending_ = false;
  }
}

// The function's captures may be the last owners of anything, even of this reply's handle: they go outside the lock.
void ReplyState::finish(std::unique_lock<std::mutex>& lock) {
  phase_ = Phase::kEnded;
  next_.ended = true;
  std::function<void()> dropped = std::exchange(disconnect_, nullptr);
  wake(lock);
}

void ReplyState::send(int status, const HttpHeaders& headers, std::string body) {
  std::unique_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kOpen) return;
  next_.head = next_.whole = true;
  next_.status = valid_status(status);
  next_.headers = headers;
  queued_ += body.size();
  pending_ = std::move(body);
  finish(lock);
}

void ReplyState::start(int status, const HttpHeaders& headers) {
  std::unique_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kOpen) return;
  phase_ = Phase::kStreaming;
  next_.head = true;
  next_.status = valid_status(status);
  next_.headers = headers;
  wake(lock);
}

bool ReplyState::write(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  if (gone_ || next_.cut || phase_ != Phase::kStreaming) return false;
  if (bytes.empty()) return true;
  if (queued_ > 0 && queued_ + bytes.size() > max_queued_) {
    next_.cut = true;
    pending_ = {};
    wake_pending_ = false;  // an earlier wake may wait for the network, which takes nothing
    wake(lock);
    return false;
  }
  pending_ += bytes;
  queued_ += bytes.size();
  wake(lock);
  return true;
}

void ReplyState::end() {
  std::unique_lock lock(mutex_);
  if (gone_ || phase_ != Phase::kStreaming) return;
  finish(lock);
}

void ReplyState::abandon() {
  std::unique_lock lock(mutex_);
  if (gone_ || phase_ == Phase::kEnded) return;
  (phase_ == Phase::kOpen ? next_.unanswered : next_.truncated) = true;
  finish(lock);
}

void ReplyState::on_disconnect(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::kEnded) return;
    if (!gone_) {
      std::swap(disconnect_, call);  // an earlier one is destroyed with `call`, outside the lock
      return;
    }
  }
  call_safely(call);
}

ReplyState::Taken ReplyState::take(std::string& data) {
  const std::lock_guard lock(mutex_);
  wake_pending_ = false;
  std::swap(data, pending_);
  Taken taken = std::move(next_);
  next_ = {};
  next_.cut = taken.cut;
  return taken;
}

void ReplyState::sent(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  queued_ -= bytes < queued_ ? bytes : queued_;
}

void ReplyState::lose() {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return;
    gone_ = true;
    call = std::exchange(disconnect_, nullptr);
    pending_ = {};
  }
  call_safely(call);
}

bool ReplyState::ended() {
  const std::lock_guard lock(mutex_);
  return phase_ == Phase::kEnded;
}

bool ReplyState::cut() {
  const std::lock_guard lock(mutex_);
  return next_.cut;
}

}  // namespace cadre::server
