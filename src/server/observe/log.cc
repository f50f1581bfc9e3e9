#include "server/observe/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/result.h"
#include "io/json.h"

namespace cadre::server {
namespace {

constexpr std::array<std::string_view, 5> kLevels{"debug", "info", "warning", "error", "off"};

// "2026-11-29T21:36:42.123Z"
std::string time_text(double seconds) {
  if (!(seconds >= 0 && seconds < 2.5e11)) seconds = 0;
  const auto ms = static_cast<std::int64_t>(seconds * 1e3);
  const std::chrono::sys_seconds time{std::chrono::seconds(ms / 1000)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  std::array<char, 80> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()), static_cast<int>(ms % 1000));
  return text.data();
}

std::string number_text(double number) {
  std::array<char, 40> text{};
  const auto [end, failed] =
      std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::general, 6);
  return failed == std::errc() ? std::string(text.data(), end) : "nan";
}

// In quotes where a reader would not take it as one word. Everything that is no printable ASCII is escaped as \xHH: a
// value can neither end its line nor steer a terminal.
std::string logfmt_value(std::string_view value) {
  const bool plain = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
    return c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\';
  });
  if (plain) return std::string(value);
  std::string out = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += "\\x";
      out += "0123456789abcdef"[byte >> 4];
      out += "0123456789abcdef"[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string cut(std::string_view value) {
  if (value.size() <= Log::kMaxValue) return std::string(value);
  return std::string(value.substr(0, Log::kMaxValue)) + "...";
}

std::string text_line(std::string_view time, std::string_view level, std::string_view event,
                      std::span<const LogField> fields) {
  std::string line = "ts=";
  line.append(time).append(" level=").append(level).append(" msg=").append(logfmt_value(cut(event)));
  for (const LogField& field : fields) {
    line.append(" ").append(field.name).append("=");
    if (const auto* text = std::get_if<std::string_view>(&field.value)) line += logfmt_value(cut(*text));
    if (const auto* number = std::get_if<std::int64_t>(&field.value)) line += std::to_string(*number);
    if (const auto* number = std::get_if<double>(&field.value)) line += number_text(*number);
    if (const auto* flag = std::get_if<bool>(&field.value)) line += *flag ? "true" : "false";
  }
  return line;
}

std::string json_line(std::string_view time, std::string_view level, std::string_view event,
                      std::span<const LogField> fields) {
  std::vector<Json::Member> members{{"ts", time}, {"level", level}, {"msg", cut(event)}};
  for (const LogField& field : fields) {
    Json value;
    if (const auto* text = std::get_if<std::string_view>(&field.value)) value = Json(cut(*text));
    if (const auto* number = std::get_if<std::int64_t>(&field.value)) value = Json(*number);
    if (const auto* number = std::get_if<double>(&field.value)) value = Json(*number);
    if (const auto* flag = std::get_if<bool>(&field.value)) value = Json(*flag);
    members.emplace_back(field.name, std::move(value));
  }
  return Json::object(std::move(members)).dump();
}

// A log that cannot be written must not stop the server: what does not go out is lost.
void write_stderr(std::string_view line) {
  while (!line.empty()) {
    const ssize_t done = ::write(STDERR_FILENO, line.data(), line.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    line.remove_prefix(static_cast<std::size_t>(done));
  }
}

}  // namespace

Result<LogLevel> parse_log_level(std::string_view text) {
  const auto at = std::find(kLevels.begin(), kLevels.end(), text);
  if (at != kLevels.end()) return static_cast<LogLevel>(at - kLevels.begin());
  return error(Code::kInvalidArgument, "log level '", text.substr(0, 100),
               "' is not known, want debug, info, warning, error or off");
}

Result<LogFormat> parse_log_format(std::string_view text) {
  if (text == "text") return LogFormat::kText;
  if (text == "json") return LogFormat::kJson;
  return error(Code::kInvalidArgument, "log format '", text.substr(0, 100), "' is not known, want text or json");
}

Log::Log(LogOptions options) : options_(std::move(options)) {
  if (!options_.write) options_.write = write_stderr;
  if (!options_.now) {
    options_.now = [] {
      return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    };
  }
}

void Log::write(LogLevel level, std::string_view event, std::span<const LogField> fields) {
  if (!enabled(level)) return;
  const std::string time = time_text(options_.now());
  const std::string_view name = kLevels[static_cast<std::size_t>(level)];
  std::string line =
      options_.format == LogFormat::kJson ? json_line(time, name, event, fields) : text_line(time, name, event, fields);
  line += '\n';
  const std::lock_guard lock(mutex_);
  options_.write(line);
}

std::string request_id(std::optional<std::string_view> sent) {
  const auto is_id_char = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  if (sent && !sent->empty() && sent->size() <= 64 && std::all_of(sent->begin(), sent->end(), is_id_char)) {
    return std::string(*sent);
  }
  std::array<std::uint8_t, 16> bytes{};
  if (::getentropy(bytes.data(), bytes.size()) != 0) {
    // No system that runs this lacks getentropy; an id that is only distinct still serves the log.
    static std::atomic<std::uint64_t> next{0};
    const std::uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(number >> (8 * i));
  }
  std::string id = "req-";
  for (const std::uint8_t byte : bytes) {
    id += "0123456789abcdef"[byte >> 4];
    id += "0123456789abcdef"[byte & 15];
  }
  return id;
}

}  // namespace cadre::server
