// ReplyState: one reply between the thread that makes it and the server's thread that sends it. No sockets: the server
// takes what has piled up and says how much of it the network took.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace cadre::server {

class ReplyState {
 public:
  // `wake` is called from any thread, outside the lock, when there is something to take.
  ReplyState(std::function<void()> wake, std::size_t max_queued) : wake_(std::move(wake)), max_queued_(max_queued) {}

  // --- the maker's side: see HttpReply ---
  void send(int status, const HttpHeaders& headers, std::string body);
  void start(int status, const HttpHeaders& headers);
  bool write(std::string_view bytes);
  void end();
  void on_disconnect(std::function<void()> call);
  // The maker is gone. Without an answer the reply becomes a 500; with half an answer it is cut off.
  void abandon();

  // --- the server's side, its thread only ---
  struct Taken {
    bool head = false;  // status and headers are set, once for a reply
    int status = 200;
    HttpHeaders headers;
    bool whole = false;       // with head: all of the body is in the same piece
    bool ended = false;       // nothing comes after this piece
    bool truncated = false;   // ended, but not by end(): the client must see that something is missing
    bool unanswered = false;  // ended without a word from the maker: a 500 is to be sent
    bool cut = false;         // the client let too much pile up
  };
  // Puts the body's bytes in `data`, which must be empty; its memory is used for what comes next.
  Taken take(std::string& data);
  void sent(std::size_t bytes);
  // The client is gone: calls on_disconnect's function unless the answer was complete.
  void lose();
  bool ended();  // the maker is done
  bool cut();    // the client let too much pile up, as take() will say too

 private:
  enum class Phase : std::uint8_t { kOpen, kStreaming, kEnded };
  void finish(std::unique_lock<std::mutex>& lock);
  void wake(std::unique_lock<std::mutex>& lock);

  const std::function<void()> wake_;
  const std::size_t max_queued_;
  std::mutex mutex_;
  Phase phase_ = Phase::kOpen;
  bool gone_ = false;
  bool wake_pending_ = false;
  Taken next_;
  std::string pending_;
  std::size_t queued_ = 0;  // pending_ and what the network has not taken yet
  std::function<void()> disconnect_;
};

// What a handler holds.
class ReplyHandle final : public HttpReply {
 public:
  explicit ReplyHandle(std::shared_ptr<ReplyState> state) : state_(std::move(state)) {}
  ~ReplyHandle() override { state_->abandon(); }
  void send(int status, const HttpHeaders& headers, std::string body) override {
    state_->send(status, headers, std::move(body));
  }
  void start(int status, const HttpHeaders& headers) override { state_->start(status, headers); }
  bool write(std::string_view bytes) override { return state_->write(bytes); }
  void end() override { state_->end(); }
  void on_disconnect(std::function<void()> call) override { state_->on_disconnect(std::move(call)); }

 private:
  const std::shared_ptr<ReplyState> state_;
};

}  // namespace cadre::server
