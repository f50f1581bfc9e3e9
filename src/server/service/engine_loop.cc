#include "server/service/engine_loop.h"

#include <chrono>
#include <exception>
#include <utility>

namespace cadre::server {

EngineLoop::EngineLoop(std::unique_ptr<Engine> engine) : engine_(std::move(engine)), thread_([this] { run(); }) {}

EngineLoop::~EngineLoop() { stop(); }

void EngineLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void EngineLoop::post(Call call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  work_.notify_all();
}

void EngineLoop::later(std::function<void()> call) {
  post([call = std::move(call)](Engine&) { call(); });
}

Status EngineLoop::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void EngineLoop::on_failure(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  on_failure_ = std::move(call);
}

void EngineLoop::submit(std::vector<Request> group, std::shared_ptr<EventSink> sink) {
  auto shared = std::make_shared<std::vector<Request>>(std::move(group));
  post([this, shared, sink = std::move(sink)](Engine&) { take_in(std::move(*shared), sink); });
}

void EngineLoop::cancel(std::vector<std::uint64_t> ids) {
  post([this, ids = std::move(ids)](Engine&) { drop(ids); });
}

void EngineLoop::take_in(std::vector<Request> group, const std::shared_ptr<EventSink>& sink) {
  if (const Status broken = failure(); !broken.ok()) return sink->refused(broken);
  auto ids = std::make_shared<std::vector<std::uint64_t>>();
  for (Request& request : group) {
    const Result<std::uint64_t> id = engine_->submit(std::move(request));
    if (!id.ok()) {
      drop(*ids);
      return sink->refused(id.status());
    }
    members_[*id] = {sink, ids->size(), ids};
    ids->push_back(*id);
  }
  sink->accepted(*ids);
}

void EngineLoop::drop(const std::vector<std::uint64_t>& ids) {
  for (const std::uint64_t id : ids) {
    if (members_.erase(id) > 0) engine_->cancel(id);
  }
}

void EngineLoop::hand_out(const std::vector<Event>& events) {
  for (const Event& event : events) {
    const auto it = members_.find(event.request);
    if (it == members_.end()) continue;  // dropped
    const Member member = it->second;
    if (event.finish != FinishReason::kNone) members_.erase(it);
    if (!member.sink->event(member.index, event)) drop(*member.group);
  }
}

// A step that fails leaves the engine in a state that nobody can vouch for.
void EngineLoop::fail(const Status& why) {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    failure_ = why;
    call = std::exchange(on_failure_, nullptr);
  }
  std::unordered_map<std::uint64_t, Member> members = std::exchange(members_, {});
  for (const auto& [id, member] : members) {
    Event event;
    event.request = id;
    event.finish = FinishReason::kError;
    event.error = why;
    member.sink->event(member.index, event);
  }
  if (call) call();
}

void EngineLoop::run() {
  while (true) {
    std::vector<Call> calls;
    {
      std::unique_lock lock(mutex_);
      const auto ready = [&] { return stopping_ || !calls_.empty() || (failure_.ok() && !engine_->idle()); };
      work_.wait(lock, ready);
      calls.swap(calls_);
      if (stopping_ && calls.empty()) return;
    }
    // What the standard library throws, no memory for the most part, ends serving like a step that fails.
    try {
      turn(std::move(calls));
    } catch (const std::exception& e) {
      fail(Status(Code::kInternal, std::string("unexpected failure: ") + e.what()));
    }
  }
}

void EngineLoop::turn(std::vector<Call> calls) {
  for (const Call& call : calls) call(*engine_);
  if (!failure().ok() || engine_->idle()) return;
  const Result<std::vector<Event>> events = engine_->step();
  if (!events.ok()) return fail(events.status());
  hand_out(*events);
  if (!engine_->stalled()) return;
  // Nothing can run before something else happens: a call, or the end of a request's time.
  std::unique_lock lock(mutex_);
  work_.wait_for(lock, std::chrono::milliseconds(5), [&] { return stopping_ || !calls_.empty(); });
}

}  // namespace cadre::server
