#include "text/chat_template/clock.h"

#include <algorithm>

namespace cadre::chat_template {
namespace {

constexpr const char* kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                   "July",    "August",   "September", "October", "November", "December"};

struct Date {
  std::int64_t year;
  int month, day, hour, minute, second;
  int weekday;   // from Sunday
  int year_day;  // from 0
};

bool is_leap(std::int64_t year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

Date date_of(std::int64_t seconds) {
  // Years 0 to 9999, as Python's datetime.
  seconds = std::clamp<std::int64_t>(seconds, -62'135'596'800, 253'402'300'799);
  std::int64_t days = seconds / 86'400;
  std::int64_t rest = seconds % 86'400;
  if (rest < 0) {
    rest += 86'400;
    --days;
  }
  Date out{};
  out.hour = static_cast<int>(rest / 3600);
  out.minute = static_cast<int>(rest / 60 % 60);
  out.second = static_cast<int>(rest % 60);
  out.weekday = static_cast<int>(((days + 4) % 7 + 7) % 7);  // 1970-01-01 was a Thursday
  out.year = 1970;
  const auto length = [](std::int64_t year) { return is_leap(year) ? 366 : 365; };
  while (days < 0) days += length(--out.year);
  while (days >= length(out.year)) days -= length(out.year++);
  out.year_day = static_cast<int>(days);
  const int month_days[] = {31, is_leap(out.year) ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  while (days >= month_days[out.month]) days -= month_days[out.month++];
  out.month += 1;
  out.day = static_cast<int>(days) + 1;
  return out;
}

std::string padded(std::int64_t value, std::size_t width, char fill) {
  std::string text = std::to_string(value);
  if (fill != '\0' && text.size() < width) text.insert(0, width - text.size(), fill);
  return text;
}

}  // namespace

Result<std::string> format_time(std::int64_t seconds, std::string_view format) {
  const Date date = date_of(seconds);
  const int hour12 = date.hour % 12 == 0 ? 12 : date.hour % 12;
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    char letter = format[++i];
    char fill = '0';
    if (letter == '-' && i + 1 < format.size()) {  // without padding
      fill = '\0';
      letter = format[++i];
    }
    const auto nested = [&](std::string_view parts) -> Status {
      CADRE_ASSIGN(const std::string text, format_time(seconds, parts));
      out += text;
      return {};
    };
    switch (letter) {
      case 'Y':
        out += padded(date.year, 4, '\0');
        break;
      case 'y':
        out += padded(date.year % 100, 2, fill);
        break;
      case 'm':
        out += padded(date.month, 2, fill);
        break;
      case 'd':
        out += padded(date.day, 2, fill);
        break;
      case 'e':
        out += padded(date.day, 2, fill == '0' ? ' ' : fill);
        break;
      case 'H':
        out += padded(date.hour, 2, fill);
        break;
      case 'I':
        out += padded(hour12, 2, fill);
        break;
      case 'M':
        out += padded(date.minute, 2, fill);
        break;
      case 'S':
        out += padded(date.second, 2, fill);
        break;
      case 'f':
        out += "000000";
        break;
      case 'j':
        out += padded(date.year_day + 1, 3, fill);
        break;
      case 'p':
        out += date.hour < 12 ? "AM" : "PM";
        break;
      case 'A':
        out += kDays[date.weekday];
        break;
      case 'a':
        out += std::string_view(kDays[date.weekday]).substr(0, 3);
        break;
      case 'B':
        out += kMonths[date.month - 1];
        break;
      case 'b':
      case 'h':
        out += std::string_view(kMonths[date.month - 1]).substr(0, 3);
        break;
      case 'w':
        out += std::to_string(date.weekday);
        break;
      case 'u':
        out += std::to_string(date.weekday == 0 ? 7 : date.weekday);
        break;
      case 's':
        out += std::to_string(seconds);
        break;
      case 'Z':
      case 'z':
        break;  // Python prints nothing for a time without a zone
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'F':
        CADRE_TRY(nested("%Y-%m-%d"));
        break;
      case 'T':
      case 'X':
        CADRE_TRY(nested("%H:%M:%S"));
        break;
      case 'R':
        CADRE_TRY(nested("%H:%M"));
        break;
      case 'D':
      case 'x':
        CADRE_TRY(nested("%m/%d/%y"));
        break;
      case 'c':
        CADRE_TRY(nested("%a %b %e %H:%M:%S %Y"));
        break;
      case '%':
        out += '%';
        break;
      default:
        return error(Code::kUnsupported, "strftime_now() does not know '%", std::string(1, letter), "'");
    }
  }
  return out;
}

}  // namespace cadre::chat_template
