// A blocking TCP client that sends exactly the bytes a test wants, and a server to send them to.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/http_server.h"

namespace cadre::server {

class RawClient {
 public:
  // `receive_buffer`: of the socket, so that a test can be a slow reader; 0 leaves it.
  // `from`: the address to come from, "127.0.0.2"; every one that begins with 127 is this machine.
  explicit RawClient(int port, int receive_buffer = 0, const char* from = nullptr)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    if (from != nullptr) {
      inet_pton(AF_INET, from, &address.sin_addr);
      EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) hang_up();
  }
  ~RawClient() { hang_up(); }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)), in_(std::move(other.in_)) {}
  RawClient& operator=(RawClient&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(in_, other.in_);
    return *this;
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  void hang_up() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void reset() {  // hang up with a RST
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    hang_up();
  }
  void end_sending() { shutdown(fd_, SHUT_WR); }

  // False if the server no longer takes it.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  // Reads once what there is; false at the end of the connection or after `wait_ms` of silence.
  bool read_some(int wait_ms = 5000) {
    pollfd look{fd_, POLLIN, 0};
    if (fd_ < 0 || poll(&look, 1, wait_ms) <= 0) {
      timed_out_ = true;
      return false;
    }
    char buffer[65536];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    in_.append(buffer, static_cast<std::size_t>(n));
    return true;
  }
  // All bytes until the connection ends.
  std::string read_all(int wait_ms = 5000) {
    while (read_some(wait_ms)) {
    }
    return std::exchange(in_, {});
  }
  std::string read_until(std::string_view mark, int wait_ms = 5000) {
    std::size_t at = 0;
    while ((at = in_.find(mark)) == std::string::npos) {
      if (!read_some(wait_ms)) return std::exchange(in_, {});
    }
    std::string found = in_.substr(0, at + mark.size());
    in_.erase(0, at + mark.size());
    return found;
  }
  // One reply with a Content-Length (of a 100 Continue: the header), as it came.
  std::string read_reply(bool to_head = false, int wait_ms = 5000) {
    std::string reply = read_until("\r\n\r\n", wait_ms);
    const std::size_t at = reply.find("Content-Length: ");
    if (at == std::string::npos || to_head) return reply;
    const std::size_t want = std::stoul(reply.substr(at + 16));
    while (in_.size() < want) {
      if (!read_some(wait_ms)) break;
    }
    reply += in_.substr(0, want);
    in_.erase(0, want);
    return reply;
  }
  bool ended() const { return ended_; }  // the server closed, as seen by a read
  bool timed_out() const { return timed_out_; }
  // Whether the server closes within the time; what it still sends is dropped.
  bool closes(int wait_ms = 5000) {
    read_all(wait_ms);
    return ended_;
  }

 private:
  int fd_;
  bool ended_ = false, timed_out_ = false;
  std::string in_;
};

// Of the status line at the start; 0 where there is none.
inline int status_of_reply(std::string_view reply) {
  if (reply.size() < 12 || reply.substr(0, 9) != "HTTP/1.1 ") return 0;
  int status = 0;
  for (const char c : reply.substr(9, 3)) {
    if (c < '0' || c > '9') return 0;
    status = status * 10 + (c - '0');
  }
  return status;
}

inline std::string get(std::string_view path, std::string_view more = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(more) + "\r\n";
}

inline std::string post(std::string_view path, std::string_view body) {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + std::string(body);
}

// A started server. Without a handler it echoes: "METHOD path?query body".
inline std::unique_ptr<HttpServer> start_server(const HttpLimits& limits = {}, HttpHandler handler = nullptr,
                                                HttpHeadCheck head_check = nullptr) {
  if (!handler) {
    handler = [](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      reply->send(200, {{"Content-Type", "text/plain"}},
                  request.method + " " + request.path + "?" + request.query + " " + request.body);
    };
  }
  const HttpErrorBody error_body = [](int status, std::string_view message) {
    return std::pair<std::string, std::string>("E" + std::to_string(status) + " " + std::string(message), "text/error");
  };
  auto server = HttpServer::listen("127.0.0.1", 0, limits, std::move(handler), error_body, std::move(head_check));
  EXPECT_TRUE(server.ok()) << server.status().message();
  if (!server.ok()) return nullptr;
  (*server)->start();
  return std::move(server).value();
}

template <class F>
bool eventually(F condition, double seconds = 5) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    usleep(200);
  }
  return true;
}

}  // namespace cadre::server
