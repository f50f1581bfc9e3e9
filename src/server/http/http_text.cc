#include "server/http/http_text.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "base/result.h"
#include "io/utf8.h"

namespace cadre::server {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool is_token_char(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
  return std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

Result<std::string> decode_path(std::string_view raw) {
  std::string path;
  path.reserve(raw.size());
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '%') {
      path += raw[i];
      continue;
    }
    const int high = i + 1 < raw.size() ? hex_value(raw[i + 1]) : -1;
    const int low = i + 2 < raw.size() ? hex_value(raw[i + 2]) : -1;
    if (high < 0 || low < 0)
      return error(Code::kInvalidArgument, "a '%' in the path must have two hex digits after it");
    path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  for (std::size_t i = 0; i < path.size();) {
    const std::size_t n = utf8_char_bytes(std::string_view(path).substr(i));
    if (n == 0 || is_control(path[i])) {
      return error(Code::kInvalidArgument, "the decoded path must be UTF-8 without control characters");
    }
    i += n;
  }
  return path;
}

bool server_owns(std::string_view name) {
  for (const std::string_view own : {"content-length", "transfer-encoding", "connection", "date"}) {
    if (same_name(name, own)) return true;
  }
  return false;
}

bool clean_value(std::string_view value) {
  return std::none_of(value.begin(), value.end(), [](char c) { return is_control(c) && c != '\t'; });
}

}  // namespace

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

bool is_token(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char); }

HeaderScan::Found HeaderScan::scan(std::string_view bytes) {
  for (; seen_ < bytes.size(); ++seen_) {
    const char c = bytes[seen_];
    if (last_ == '\r') {
      if (c != '\n') {
        error_ = "a carriage return in the header must have a line feed after it";
        return Found::kBad;
      }
      if (line_empty_ && !first_line_) {
        ++seen_;
        return Found::kEnd;
      }
      first_line_ = false;
      line_empty_ = true;
    } else if (c == '\n') {
      error_ = "a header line must end in CR LF";
      return Found::kBad;
    } else if (c == '\r') {
      if (line_empty_ && first_line_) {
        error_ = "the request line is missing";
        return Found::kBad;
      }
    } else if (is_control(c) && c != '\t') {
      error_ = c == 0x16 && seen_ == 0 ? "this looks like TLS, and this port speaks plain HTTP"
                                       : "control characters are not allowed in a header";
      return Found::kBad;
    } else {
      if (line_empty_ && (c == ' ' || c == '\t')) {
        error_ = "a header line must not begin with a blank";
        return Found::kBad;
      }
      line_empty_ = false;
    }
    last_ = c;
  }
  return Found::kMore;
}

Result<HttpTarget> parse_target(std::string_view method, std::string_view target) {
  for (const char c : target) {
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f || c == '#' || c == '\\') {
      return error(Code::kInvalidArgument, "the request target has a character that must be percent-encoded");
    }
  }
  if (target == "*" && method == "OPTIONS") return HttpTarget{"*", ""};
  if (!target.empty() && target.front() != '/') {
    const std::size_t scheme = target.find("://");
    if (scheme == std::string_view::npos ||
        (!same_name(target.substr(0, scheme), "http") && !same_name(target.substr(0, scheme), "https"))) {
      return error(Code::kInvalidArgument, "the request target must be a path that begins with '/'");
    }
    target.remove_prefix(scheme + 3);
    const std::size_t end = std::min(target.find_first_of("/?"), target.size());
    if (end == 0) return error(Code::kInvalidArgument, "the request target names no host");
    target.remove_prefix(end);
    if (target.empty()) return HttpTarget{"/", ""};
    if (target.front() == '?') return HttpTarget{"/", std::string(target.substr(1))};
  }
  if (target.empty()) return error(Code::kInvalidArgument, "the request target is empty");
  HttpTarget result;
  const std::size_t question = std::min(target.find('?'), target.size());
  CADRE_ASSIGN(result.path, decode_path(target.substr(0, question)));
  if (question < target.size()) result.query = target.substr(question + 1);
  return result;
}

ChunkLine look_at_chunk_line(std::string_view bytes, bool after_chunk) {
  if (after_chunk) {
    const std::string_view end = bytes.substr(0, 2);
    if (end != std::string_view("\r\n").substr(0, end.size())) return ChunkLine::kBad;
    if (end.size() < 2) return ChunkLine::kMore;
    bytes.remove_prefix(2);
  }
  if (bytes.empty()) return ChunkLine::kMore;
  if (hex_value(bytes.front()) < 0) return ChunkLine::kBad;
  const std::size_t end = bytes.find('\r');
  const std::string_view line = bytes.substr(0, end);
  if (!clean_value(line)) return ChunkLine::kBad;
  if (end == std::string_view::npos || end + 1 == bytes.size()) return ChunkLine::kMore;
  if (bytes[end + 1] != '\n') return ChunkLine::kBad;
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == '\\' && quoted) ++i;
  }
  if (quoted) return ChunkLine::kBad;
  const std::size_t digits = line.find_first_not_of('0');
  const bool last = digits == std::string_view::npos || (digits > 0 && hex_value(line[digits]) < 0);
  return !last || bytes.find("\r\n\r\n", end) != std::string_view::npos ? ChunkLine::kReady : ChunkLine::kMore;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 406:
      return "Not Acceptable";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    case 507:
      return "Insufficient Storage";
    default:
      return status < 400 ? "OK" : "Error";
  }
}

std::string http_date(std::int64_t unix_seconds) {
  // Not strftime: its names follow the locale.
  constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm tm{};
  if (gmtime_r(&seconds, &tm) == nullptr) return "Thu, 01 Jan 1970 00:00:00 GMT";
  const auto two = [](int n) {
    return std::string{static_cast<char>('0' + n / 10 % 10), static_cast<char>('0' + n % 10)};
  };
  return std::string(kDays[static_cast<std::size_t>(tm.tm_wday)]) + ", " + two(tm.tm_mday) + " " +
         kMonths[static_cast<std::size_t>(tm.tm_mon)] + " " + std::to_string(1900 + tm.tm_year) + " " +
         two(tm.tm_hour) + ":" + two(tm.tm_min) + ":" + two(tm.tm_sec) + " GMT";
}

bool asks_close(const HttpHeaders& headers) {
  return std::any_of(headers.begin(), headers.end(), [](const auto& header) {
    return same_name(header.first, "connection") && same_name(header.second, "close");
  });
}

void append_head(const HeadOptions& options, const HttpHeaders& headers, std::string& out) {
  out += "HTTP/1.1 ";
  out += std::to_string(options.status);
  out += ' ';
  out += reason_phrase(options.status);
  out += "\r\n";
  for (const auto& [name, value] : headers) {
    if (!is_token(name) || !clean_value(value) || server_owns(name)) continue;
    out += name;
    out += ": ";
    out += value;
    out += "\r\n";
  }
  if (options.framing == BodyFraming::kLength) {
    out += "Content-Length: ";
    out += std::to_string(options.length);
    out += "\r\n";
  } else if (options.framing == BodyFraming::kChunked) {
    out += "Transfer-Encoding: chunked\r\n";
  }
  if (!options.keep_alive) {
    out += "Connection: close\r\n";
  } else if (options.http10) {
    out += "Connection: keep-alive\r\n";
  }
  out += "Date: ";
  out += options.date;
  out += "\r\n\r\n";
}

}  // namespace cadre::server
