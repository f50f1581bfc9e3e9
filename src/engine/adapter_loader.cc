#include "engine/adapter_loader.h"

#include <exception>
#include <utility>

#include "base/result.h"

namespace cadre {

AdapterLoader::AdapterLoader(Read read) : read_(std::move(read)), thread_([this] { run(); }) {}

AdapterLoader::~AdapterLoader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void AdapterLoader::start(AdapterRef adapter) {
  CADRE_CHECK(!busy(), "one adapter is read at a time");
  adapter_ = std::move(adapter);
  {
    const std::lock_guard lock(mutex_);
    asked_ = adapter_->source;
  }
  changed_.notify_all();
}

std::optional<AdapterLoader::Done> AdapterLoader::take() {
  const std::lock_guard lock(mutex_);
  if (!result_) return std::nullopt;
  Done done{std::exchange(adapter_, nullptr), std::move(*result_)};
  result_.reset();
  return done;
}

bool AdapterLoader::wait(std::chrono::milliseconds most) {
  if (!busy()) return false;
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [&] { return result_.has_value(); });
}

void AdapterLoader::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || asked_; });
    if (stopping_) return;
    const AdapterSource source = *std::exchange(asked_, std::nullopt);
    lock.unlock();
    // What the standard library throws, no memory for the most part, fails this adapter alone.
    Result<std::shared_ptr<ReadAdapter>> result = [&]() -> Result<std::shared_ptr<ReadAdapter>> {
      try {
        return read_(source);
      } catch (const std::exception& e) {
        return error(Code::kOutOfMemory, "adapter '", source.name, "' cannot be read: ", e.what());
      }
    }();
    lock.lock();
    result_ = std::move(result);
    changed_.notify_all();
  }
}

}  // namespace cadre
