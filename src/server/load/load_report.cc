#include "server/load/load_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace cadre::server {
namespace {

constexpr std::size_t kMaxErrors = 10;

// The figures of the records that belong to `target`, or of all.
LoadFigures figures(const std::vector<LoadRecord>& records, const Goodput& goodput, const std::size_t* target) {
  LoadFigures figures;
  std::vector<double> ttft, tpot, itl, e2el;
  for (const LoadRecord& record : records) {
    if (target != nullptr && record.target != *target) continue;
    if (record.cancelled) {
      ++figures.cancelled;
      continue;
    }
    if (!record.error.empty()) {
      ++figures.failed;
      continue;
    }
    ++figures.answered;
    figures.prompt_tokens += record.prompt_tokens;
    figures.output_tokens += record.output_tokens;
    if (!record.counted_by_server) ++figures.uncounted;
    const double first_ms = (record.first - record.sent) * 1e3, all_ms = (record.last - record.sent) * 1e3;
    double token_ms = 0;
    ttft.push_back(first_ms);
    e2el.push_back(all_ms);
    if (record.output_tokens > 1) {
      token_ms = (all_ms - first_ms) / static_cast<double>(record.output_tokens - 1);
      tpot.push_back(token_ms);
    }
    for (const float interval : record.intervals) itl.push_back(double{interval} * 1e3);
    const bool good = (goodput.ttft_ms <= 0 || first_ms <= goodput.ttft_ms) &&
                      (goodput.tpot_ms <= 0 || token_ms <= goodput.tpot_ms) &&
                      (goodput.e2el_ms <= 0 || all_ms <= goodput.e2el_ms);
    if (good) ++figures.good;
  }
  figures.ttft = distribution(std::move(ttft));
  figures.tpot = distribution(std::move(tpot));
  figures.itl = distribution(std::move(itl));
  figures.e2el = distribution(std::move(e2el));
  return figures;
}

// "3 x connection refused", the most frequent first.
std::vector<std::string> error_lines(const std::vector<LoadRecord>& records) {
  std::vector<std::pair<std::string, std::int64_t>> counts;
  std::int64_t more = 0;
  for (const LoadRecord& record : records) {
    if (record.error.empty() || record.cancelled) continue;
    const auto at = std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == record.error; });
    if (at != counts.end()) {
      ++at->second;
    } else if (counts.size() < kMaxErrors) {
      counts.emplace_back(record.error, 1);
    } else {
      ++more;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [text, count] : counts) lines.push_back(std::to_string(count) + " x " + text);
  if (more > 0) lines.push_back(std::to_string(more) + " x other errors");
  return lines;
}

double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

void add_line(std::string* text, const std::string& label, const std::string& value) {
  constexpr std::size_t kColumn = 34, kWidth = 12;
  std::string line = label;
  line.append(line.size() < kColumn ? kColumn - line.size() : 1, ' ');
  if (value.size() < kWidth) line.append(kWidth - value.size(), ' ');
  *text += line + value + "\n";
}

std::string row(const std::string& name, const Distribution& d) {
  char text[160];
  std::snprintf(text, sizeof text, "%-22.22s %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f\n", name.c_str(), d.mean, d.p50, d.p90,
                d.p95, d.p99, d.max);
  return text;
}

Json json(const Distribution& d) {
  return Json::object({{"count", d.count},
                       {"mean", d.mean},
                       {"median", d.p50},
                       {"p90", d.p90},
                       {"p95", d.p95},
                       {"p99", d.p99},
                       {"max", d.max}});
}

std::vector<Json::Member> json(const LoadFigures& f, double seconds, const Goodput& goodput) {
  std::vector<Json::Member> members = {
      {"answered", f.answered},
      {"failed", f.failed},
      {"cancelled", f.cancelled},
      {"prompt_tokens", f.prompt_tokens},
      {"output_tokens", f.output_tokens},
      {"uncounted", f.uncounted},
      {"requests_per_s", rate(static_cast<double>(f.answered), seconds)},
      {"output_tokens_per_s", rate(static_cast<double>(f.output_tokens), seconds)},
      {"total_tokens_per_s", rate(static_cast<double>(f.output_tokens + f.prompt_tokens), seconds)},
      {"ttft_ms", json(f.ttft)},
      {"tpot_ms", json(f.tpot)},
      {"itl_ms", json(f.itl)},
      {"e2el_ms", json(f.e2el)},
  };
  if (goodput.any()) {
    members.emplace_back("good", f.good);
    members.emplace_back("goodput_per_s", rate(static_cast<double>(f.good), seconds));
  }
  return members;
}

Json json(const IntRange& range) { return Json::array(std::vector<Json>{range.min, range.max}); }

}  // namespace

Distribution distribution(std::vector<double> values) {
  Distribution d;
  d.count = static_cast<std::int64_t>(values.size());
  if (values.empty()) return d;
  std::sort(values.begin(), values.end());
  const auto at = [&](double percent) {
    const double place = percent / 100 * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
  };
  for (const double value : values) d.mean += value;
  d.mean /= static_cast<double>(values.size());
  d.p50 = at(50);
  d.p90 = at(90);
  d.p95 = at(95);
  d.p99 = at(99);
  d.max = values.back();
  return d;
}

LoadReport make_report(const LoadOptions& options, const std::vector<LoadRecord>& records, bool interrupted) {
  LoadReport report;
  report.options = options;
  report.interrupted = interrupted;
  double begin = 0, end = 0;
  bool any = false;
  std::vector<double> late;
  for (const LoadRecord& record : records) {
    late.push_back(std::max(0.0, record.sent - record.due) * 1e3);
    begin = any ? std::min(begin, record.sent) : record.sent;
    end = std::max(end, record.last);
    any = true;
  }
  report.seconds = std::max(0.0, end - begin);
  report.late_ms = distribution(std::move(late)).p99;
  report.all = figures(records, options.goodput, nullptr);
  for (std::size_t i = 0; options.targets.size() > 1 && i < options.targets.size(); ++i) {
    report.targets.push_back(figures(records, options.goodput, &i));
    report.targets.back().name = options.targets[i].name;
  }
  report.errors = error_lines(records);
  return report;
}

std::string to_text(const LoadReport& report) {
  const LoadFigures& all = report.all;
  std::string text;
  if (report.interrupted) text += "interrupted; measured so far:\n";
  add_line(&text, "answered requests", std::to_string(all.answered));
  add_line(&text, "failed requests", std::to_string(all.failed));
  if (all.cancelled > 0) add_line(&text, "cancelled requests", std::to_string(all.cancelled));
  for (const std::string& line : report.errors) text += "  " + line + "\n";
  add_line(&text, "duration (s)", format("%.2f", report.seconds));
  add_line(&text, "prompt tokens", std::to_string(all.prompt_tokens));
  add_line(&text, "output tokens", std::to_string(all.output_tokens));
  if (all.uncounted > 0) {
    text += "  the server sent no usage for " + std::to_string(all.uncounted) +
            " answers: of those the pieces are counted, not the tokens\n";
  }
  add_line(&text, "requests/s", format("%.2f", rate(static_cast<double>(all.answered), report.seconds)));
  add_line(&text, "output tokens/s", format("%.2f", rate(static_cast<double>(all.output_tokens), report.seconds)));
  add_line(&text, "prompt and output tokens/s",
           format("%.2f", rate(static_cast<double>(all.output_tokens + all.prompt_tokens), report.seconds)));
  if (report.options.goodput.any()) {
    add_line(&text, "good requests", std::to_string(all.good));
    add_line(&text, "goodput (requests/s)", format("%.2f", rate(static_cast<double>(all.good), report.seconds)));
  }
  if (report.options.request_rate > 0) {
    add_line(&text, "sent later than due, p99 (ms)", format("%.2f", report.late_ms));
  }
  const auto table = [&](const LoadFigures& f) {
    text += row("first token", f.ttft) + row("each output token", f.tpot) + row("between pieces", f.itl) +
            row("whole answer", f.e2el);
  };
  text += "\nms                          mean    median       p90       p95       p99       max\n";
  table(all);
  for (const LoadFigures& target : report.targets) {
    text += "\n" + target.name + ": " + std::to_string(target.answered) + " answered, " +
            std::to_string(target.failed) + " failed, " +
            format("%.2f", rate(static_cast<double>(target.output_tokens), report.seconds)) + " output tokens/s\n";
    table(target);
  }
  return text;
}

Json to_json(const LoadReport& report) {
  const LoadOptions& o = report.options;
  std::vector<Json> targets;
  for (const LoadTarget& target : o.targets) {
    targets.push_back(Json::object({{"name", target.name}, {"share", target.share}}));
  }
  // The key stays out: reports are passed around.
  std::vector<Json::Member> members = {
      {"load", Json::object({{"base_url", o.base_url},
                             {"endpoint", o.chat ? "chat" : "completions"},
                             {"targets", Json::array(std::move(targets))},
                             {"max_concurrency", o.max_concurrency > 0 ? Json(o.max_concurrency) : Json()},
                             {"request_rate", o.request_rate > 0 ? Json(o.request_rate) : Json()},
                             {"num_prompts", o.num_prompts > 0 ? Json(o.num_prompts) : Json()},
                             {"duration_s", o.duration_s > 0 ? Json(o.duration_s) : Json()},
                             {"prompts", o.prompts_file.empty() ? Json() : Json(o.prompts_file)},
                             {"input_len", o.prompts_file.empty() ? json(o.input_len) : Json()},
                             {"output_len", json(o.output_len)},
                             {"ignore_eos", o.ignore_eos},
                             {"temperature", o.temperature >= 0 ? Json(o.temperature) : Json()},
                             {"seed", o.seed}})},
      {"interrupted", report.interrupted},
      {"duration_s", report.seconds},
      {"late_p99_ms", report.late_ms},
  };
  for (Json::Member& member : json(report.all, report.seconds, o.goodput)) members.push_back(std::move(member));
  std::vector<Json::Member> each;
  for (const LoadFigures& target : report.targets) {
    each.emplace_back(target.name, Json::object(json(target, report.seconds, o.goodput)));
  }
  members.emplace_back("models", Json::object(std::move(each)));
  members.emplace_back("errors", Json::array(report.errors));
  return Json::object(std::move(members));
}

}  // namespace cadre::server
