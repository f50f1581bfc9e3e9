// The server's log: one line for each event, on stderr, as logfmt or JSON. Made of names and numbers; prompts, answers
// and keys never come here. A library would bring its patterns, sinks and threads, and the part that matters, fields
// that cannot break out of their line, would still be ours; so this is all of it.
#pragma once

#include <cadre/status.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace cadre::server {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError, kOff };
enum class LogFormat : std::uint8_t { kText, kJson };
Result<LogLevel> parse_log_level(std::string_view text);    // "debug", "info", "warning", "error", "off"
Result<LogFormat> parse_log_format(std::string_view text);  // "text", "json"

// A name of letters and underscores that the code chose, and a value that anyone may have.
struct LogField {
  std::string_view name;
  std::variant<std::string_view, std::int64_t, double, bool> value;

  LogField(std::string_view key, std::string_view text) : name(key), value(text) {}
  LogField(std::string_view key, const std::string& text) : name(key), value(std::string_view(text)) {}
  LogField(std::string_view key, const char* text) : name(key), value(std::string_view(text)) {}
  LogField(std::string_view key, bool flag) : name(key), value(flag) {}
  LogField(std::string_view key, std::integral auto number) : name(key), value(static_cast<std::int64_t>(number)) {}
  LogField(std::string_view key, double number) : name(key), value(number) {}
};

struct LogOptions {
  LogFormat format = LogFormat::kText;
  LogLevel level = LogLevel::kInfo;
  std::function<void(std::string_view line)> write;  // with the end of line; absent: stderr, one write each
  std::function<double()> now;                       // seconds since 1970; absent: the system's clock
};

// Thread-safe; lines do not mix.
class Log {
 public:
  static constexpr std::size_t kMaxValue = 1'000;  // bytes of one value; longer ones are cut

  explicit Log(LogOptions options);
  bool enabled(LogLevel level) const { return level >= options_.level && level != LogLevel::kOff; }
  // log.write(LogLevel::kInfo, "request finished", {{"request_id", id}, {"status", 200}});
  void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {}) {
    write(level, event, std::span<const LogField>(fields.begin(), fields.size()));
  }
  void write(LogLevel level, std::string_view event, std::span<const LogField> fields);

 private:
  LogOptions options_;
  std::mutex mutex_;
};

// The id a request goes by, in logs and in the header X-Request-Id of its answer: what the client sent where that is 1
// to 64 of A-Z a-z 0-9 . _ -, else a new one. New ones are random, as a counter would tell clients of each other's
// number.
std::string request_id(std::optional<std::string_view> sent);

}  // namespace cadre::server
