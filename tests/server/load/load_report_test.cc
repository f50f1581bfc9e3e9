#include "server/load/load_report.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace cadre::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Distribution, IsThatOfNumpy) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Distribution d = distribution(values);
  EXPECT_EQ(d.count, 100);
  EXPECT_DOUBLE_EQ(d.mean, 50.5);
  EXPECT_DOUBLE_EQ(d.p50, 50.5);
  EXPECT_DOUBLE_EQ(d.p90, 90.1);  // numpy.percentile(range(1, 101), [90, 95, 99])
  EXPECT_DOUBLE_EQ(d.p95, 95.05);
  EXPECT_DOUBLE_EQ(d.p99, 99.01);
  EXPECT_DOUBLE_EQ(d.max, 100);
  EXPECT_DOUBLE_EQ(distribution({3}).p99, 3);
  EXPECT_DOUBLE_EQ(distribution({1, 2}).p50, 1.5);
  EXPECT_EQ(distribution({}).count, 0);
}

LoadRecord answered(std::size_t target, double sent, double first, double last, std::int64_t tokens) {
  LoadRecord record;
  record.target = target;
  record.due = record.sent = sent;
  record.first = first;
  record.last = last;
  record.prompt_tokens = 10;
  record.output_tokens = tokens;
  record.counted_by_server = true;
  return record;
}

std::vector<LoadRecord> some_records() {
  std::vector<LoadRecord> records = {answered(0, 1, 1.1, 2.1, 11), answered(1, 2, 2.3, 3.3, 21),
                                     answered(1, 3, 3.1, 3.1, 1)};
  records[0].intervals = {0.25f, 0.75f};
  records[2].due = 2.5;
  LoadRecord failed;
  failed.sent = failed.due = 4;
  failed.last = 5;
  failed.error = "429: queue full";
  records.push_back(failed);
  records.push_back(failed);
  failed.error = "the answer ended before its end";
  records.push_back(failed);
  failed.error = "cancelled";
  failed.cancelled = true;
  records.push_back(failed);
  return records;
}

LoadOptions some_options() {
  LoadOptions options;
  options.targets = {{"base", 1}, {"poems", 2}};
  options.api_key = "sk-secret";
  options.goodput = {.ttft_ms = 200, .tpot_ms = 100};
  options.request_rate = 2;
  return options;
}

TEST(LoadReport, FiguresOfKnownRecords) {
  const LoadReport report = make_report(some_options(), some_records(), true);
  EXPECT_DOUBLE_EQ(report.seconds, 4);  // from 1 to 5
  EXPECT_EQ(report.all.answered, 3);
  EXPECT_EQ(report.all.failed, 3);
  EXPECT_EQ(report.all.cancelled, 1);
  EXPECT_EQ(report.all.output_tokens, 33);
  EXPECT_EQ(report.all.prompt_tokens, 30);
  EXPECT_NEAR(report.all.ttft.p50, 100, 1e-9);
  EXPECT_NEAR(report.all.ttft.max, 300, 1e-9);
  EXPECT_EQ(report.all.tpot.count, 2);  // one token has no time after the first
  EXPECT_NEAR(report.all.tpot.mean, 75, 1e-9);
  EXPECT_EQ(report.all.itl.count, 2);
  EXPECT_NEAR(report.all.itl.mean, 500, 1e-9);
  EXPECT_NEAR(report.all.e2el.max, 1300, 1e-9);
  EXPECT_EQ(report.all.good, 2);  // the second has its first token too late
  ASSERT_EQ(report.targets.size(), 2u);
  EXPECT_EQ(report.targets[0].name, "base");
  EXPECT_EQ(report.targets[0].answered, 1);
  EXPECT_EQ(report.targets[1].answered, 2);
  EXPECT_EQ(report.targets[1].failed, 0);
  EXPECT_THAT(report.errors, testing::ElementsAre("2 x 429: queue full", "1 x the answer ended before its end"));
  EXPECT_GT(report.late_ms, 0);
}

TEST(LoadReport, AsJsonAndAsText) {
  const LoadReport report = make_report(some_options(), some_records(), false);
  const std::string text = to_json(report).dump();
  EXPECT_THAT(text, Not(HasSubstr("sk-secret")));
  const Result<Json> json = Json::parse(text, "report");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(*json->get_int("answered"), 3);
  EXPECT_DOUBLE_EQ(*json->get_double("requests_per_s"), 0.75);
  EXPECT_DOUBLE_EQ(*json->get_double("output_tokens_per_s"), 8.25);
  EXPECT_DOUBLE_EQ(*json->get_double("goodput_per_s"), 0.5);
  EXPECT_NEAR(*json->get_object("ttft_ms")->get_double("median"), 100, 1e-9);
  EXPECT_EQ(*json->get_object("models")->get_object("poems")->get_int("answered"), 2);
  EXPECT_EQ(*json->get_object("load")->get_string("endpoint"), "chat");
  const std::string table = to_text(report);
  EXPECT_THAT(table, HasSubstr("2 x 429: queue full"));
  EXPECT_THAT(table, HasSubstr("poems: 2 answered, 0 failed"));
  EXPECT_THAT(table, Not(HasSubstr("interrupted")));
  EXPECT_THAT(to_text(make_report(some_options(), {}, true)), HasSubstr("interrupted"));
}

TEST(LoadReport, SameErrorsAreCountedAndManyKindsAreCut) {
  std::vector<LoadRecord> records(30);
  for (std::size_t i = 0; i < records.size(); ++i) records[i].error = "error " + std::to_string(i / 2);
  const LoadReport report = make_report(some_options(), records, false);
  ASSERT_EQ(report.errors.size(), 11u);
  EXPECT_EQ(report.errors.front(), "2 x error 0");
  EXPECT_EQ(report.errors.back(), "10 x other errors");
}

}  // namespace
}  // namespace cadre::server
