// EngineLoop: the one thread that the engine lives on. Others hand it requests and calls; it steps the engine whenever
// there is work and passes on what each step brought.
#pragma once

#include <cadre/engine.h>

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace cadre::server {

// Who asked for a group of sequences. Called on the engine's thread, which must not wait for it.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // The engine took all of them, under these numbers; or none, and why.
  virtual void accepted(const std::vector<std::uint64_t>& ids) = 0;
  virtual void refused(const Status& why) = 0;
  // `index`: which of the group. False: nobody is interested any more, and the whole group is cancelled.
  virtual bool event(std::size_t index, const Event& event) = 0;
};

class EngineLoop {
 public:
  explicit EngineLoop(std::unique_ptr<Engine> engine);
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Only what engine.h marks "any thread".
  const Engine& engine() const { return *engine_; }

  void submit(std::vector<Request> group, std::shared_ptr<EventSink> sink);
  // The sink hears no more of them.
  void cancel(std::vector<std::uint64_t> ids);
  // Runs `call` on the engine's thread, soon.
  void later(std::function<void()> call);
  // Runs `call` between two steps and returns what it returned. Not from the engine's thread.
  template <class F>
  auto call(F&& call) -> decltype(call(std::declval<Engine&>())) {
    using R = decltype(call(std::declval<Engine&>()));
    auto result = std::make_shared<std::promise<R>>();
    std::future<R> later = result->get_future();
    post([result, &call](Engine& engine) {
      try {
        result->set_value(call(engine));
      } catch (...) {
        result->set_exception(std::current_exception());  // thrown where it is waited for
      }
    });
    return later.get();
  }
  // Not ok once a step failed; then nothing is served any more.
  Status failure() const;
  // Called once, on the engine's thread, when that happens.
  void on_failure(std::function<void()> call);
  // Ends the thread; running sequences are dropped without a word.
  void stop();

 private:
  struct Member {
    std::shared_ptr<EventSink> sink;
    std::size_t index = 0;
    std::shared_ptr<const std::vector<std::uint64_t>> group;
  };
  using Call = std::function<void(Engine&)>;

  void post(Call call);
  void run();
  void turn(std::vector<Call> calls);
  void take_in(std::vector<Request> group, const std::shared_ptr<EventSink>& sink);
  void drop(const std::vector<std::uint64_t>& ids);
  void hand_out(const std::vector<Event>& events);
  void fail(const Status& why);

  std::unique_ptr<Engine> engine_;
  std::unordered_map<std::uint64_t, Member> members_;  // the engine's thread only
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::vector<Call> calls_;
  bool stopping_ = false;
  Status failure_;
  std::function<void()> on_failure_;
  std::thread thread_;
};

}  // namespace cadre::server
