// The bytes of a connection as anyone may send them: read as requests, whole and in pieces. However they are cut, the
// same requests come out, within the limits, and the same end.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/request_reader.h"
#include "server/http/response_reader.h"

namespace {

using cadre::server::HttpLimits;
using cadre::server::RequestReader;

constexpr std::size_t kMaxBody = 1000;

struct Outcome {
  std::vector<std::string> requests;
  bool refused = false;
  bool operator==(const Outcome&) const = default;
};

void require(bool condition) {
  if (!condition) std::abort();
}

Outcome read(std::string_view bytes, std::size_t piece) {
  HttpLimits limits;
  limits.max_header_bytes = 512;
  limits.max_body_bytes = kMaxBody;
  RequestReader reader(limits);
  Outcome outcome;
  std::string held;
  while (!bytes.empty()) {
    const std::size_t n = std::min(piece, bytes.size());
    held += bytes.substr(0, n);
    bytes.remove_prefix(n);
    for (;;) {
      const std::size_t used = reader.feed(held);
      require(used <= held.size());
      held.erase(0, used);
      // What waits is bounded, whatever is sent: a header, or a line of a chunked body.
      require(reader.state() == RequestReader::State::kError || reader.state() == RequestReader::State::kDone ||
              held.size() <= 512 + piece);
      if (reader.state() == RequestReader::State::kError) {
        require(reader.error_status() >= 400 && !reader.error_message().empty());
        outcome.refused = true;
        return outcome;
      }
      if (reader.state() != RequestReader::State::kDone) break;
      const bool keep = reader.keep_alive();
      const auto request = reader.take();
      require(request.body.size() <= kMaxBody && !request.path.empty());
      require(request.path.front() == '/' || request.path == "*");
      std::string text = request.method + " " + request.path + "?" + request.query + (keep ? " keep " : " close ");
      int lengths = 0, codings = 0;
      for (const auto& [name, value] : request.headers) {
        require((name + value).find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
        text += name + ":" + value + ";";
      }
      for (const auto& [name, value] : request.headers) {
        std::string lower = name;
        for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
        lengths += lower == "content-length" ? 1 : 0;
        codings += lower == "transfer-encoding" ? 1 : 0;
      }
      require(lengths + codings <= 1);
      outcome.requests.push_back(text + request.body);
      if (held.empty()) break;
    }
  }
  return outcome;
}

// The same bytes as a server's reply to our client.
std::string read_reply(std::string_view bytes, std::size_t piece) {
  std::string body, held;
  cadre::server::ResponseReader reader(512, kMaxBody, false,
                                       {.on_header = nullptr, .on_data = [&](std::string_view part) { body += part; }});
  using State = cadre::server::ResponseReader::State;
  while (!bytes.empty() && reader.state() != State::kDone && reader.state() != State::kError) {
    const std::size_t n = std::min(piece, bytes.size());
    held += bytes.substr(0, n);
    bytes.remove_prefix(n);
    held.erase(0, reader.feed(held));
    require(body.size() <= kMaxBody);
  }
  reader.finish();
  require(reader.state() == State::kDone || !reader.error().empty());
  return reader.state() == State::kDone ? "done " + body : "failed";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = 1 + data[0] % 64;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  require(read(bytes, std::max<std::size_t>(bytes.size(), 1)) == read(bytes, piece));
  const std::string reply = read_reply(bytes, piece);
  // Limits may strike in one way of cutting only.
  if (reply != "failed" && bytes.size() <= 512) require(reply == read_reply(bytes, bytes.size()));
  return 0;
}
