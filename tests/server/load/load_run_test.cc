// The load tool against a small server of its own.
#include "server/load/load_run.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "io/json.h"
#include "server/http/http_server.h"

namespace cadre::server {
namespace {

using ::testing::HasSubstr;

// Answers every request with three pieces; "broken" with an error; "slow" never.
class Fake {
 public:
  explicit Fake(bool has_tokenize = true) : has_tokenize_(has_tokenize) {
    auto made = HttpServer::listen(
        "127.0.0.1", 0, {},
        [this](HttpRequest request, std::shared_ptr<HttpReply> reply) { handle(std::move(request), std::move(reply)); },
        [](int, std::string_view message) { return std::pair<std::string, std::string>(message, "text/plain"); });
    EXPECT_TRUE(made.ok()) << made.status().message();
    server_ = std::move(*made);
    server_->start();
  }
  ~Fake() { server_->stop(0); }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_->port()) + "/v1/"; }
  std::map<std::string, int> models() {
    const std::lock_guard lock(mutex_);
    return models_;
  }
  int most_at_once() const { return most_; }
  std::string last_key() {
    const std::lock_guard lock(mutex_);
    return key_;
  }

 private:
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
    const auto body = Json::parse(request.body, "body");
    if (!body.ok()) return reply->send(400, {}, "{}");
    if (request.path == "/tokenize") {
      if (!has_tokenize_) return reply->send(404, {}, "{}");
      return reply->send(200, {}, R"({"count": 400})");
    }
    const std::string model = *body->get_string("model");
    {
      const std::lock_guard lock(mutex_);
      ++models_[model];
      key_ = request.header("authorization");
    }
    if (model == "broken") return reply->send(503, {}, R"({"error": {"message": "out of order"}})");
    if (model == "slow") {
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(reply));
      return;
    }
    most_ = std::max(most_.load(), ++now_);
    reply->start(200, {{"Content-Type", "text/event-stream"}});
    for (int i = 0; i < 3; ++i) reply->write("data: {\"choices\": [{\"delta\": {\"content\": \"x\"}}]}\n\n");
    reply->write("data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 9, \"completion_tokens\": 4}}\n\n");
    --now_;
    reply->write("data: [DONE]\n\n");
    reply->end();
  }

  bool has_tokenize_;
  std::mutex mutex_;
  std::map<std::string, int> models_;
  std::string key_;
  std::vector<std::shared_ptr<HttpReply>> held_;
  std::atomic<int> now_ = 0, most_ = 0;
  std::unique_ptr<HttpServer> server_;
};

LoadOptions to(const Fake& fake, std::vector<LoadTarget> targets) {
  LoadOptions options;
  options.base_url = fake.url();
  options.targets = std::move(targets);
  options.num_prompts = 60;
  options.max_concurrency = 4;
  options.timeout_s = 20;
  return options;
}

TEST(LoadRun, ClosedLoop) {
  Fake fake;
  LoadOptions options = to(fake, {{"base", 1}, {"poems", 2}});
  options.api_key = "sk-1";
  const auto report = run_load(options, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->all.answered, 60);
  EXPECT_EQ(report->all.failed, 0);
  EXPECT_EQ(report->all.output_tokens, 240);
  EXPECT_EQ(report->all.uncounted, 0);
  EXPECT_EQ(report->targets[0].answered + report->targets[1].answered, 60);
  EXPECT_EQ(fake.models()["poems"], report->targets[1].answered);
  EXPECT_GT(report->targets[1].answered, report->targets[0].answered);
  EXPECT_EQ(fake.last_key(), "Bearer sk-1");
  EXPECT_TRUE(report->notes.empty());
  EXPECT_FALSE(report->interrupted);
}

TEST(LoadRun, OpenLoopTakesItsTime) {
  Fake fake(false);
  LoadOptions options = to(fake, {{"base", 1}});
  options.num_prompts = 40;
  options.max_concurrency = 0;
  options.request_rate = 100;
  const auto report = run_load(options, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->all.answered, 40);
  EXPECT_GT(report->seconds, 0.1);  // 0.4 s on average
  ASSERT_EQ(report->notes.size(), 1u);
  EXPECT_THAT(report->notes[0], HasSubstr("/tokenize"));
}

TEST(LoadRun, FailuresAreCounted) {
  Fake fake;
  const auto report = run_load(to(fake, {{"base", 1}, {"broken", 1}}), {});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->all.answered + report->all.failed, 60);
  EXPECT_EQ(report->targets[0].failed, 0);
  EXPECT_EQ(report->targets[1].answered, 0);
  ASSERT_EQ(report->errors.size(), 1u);
  EXPECT_EQ(report->errors[0], std::to_string(report->all.failed) + " x 503: out of order");
}

TEST(LoadRun, StopsWithWhatIsThere) {
  Fake fake;
  LoadOptions options = to(fake, {{"slow", 1}});
  LoadHooks hooks;
  const auto begin = std::chrono::steady_clock::now();
  hooks.stop = [&] { return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(300); };
  const auto report = run_load(options, hooks);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->interrupted);
  EXPECT_EQ(report->all.cancelled, 4);
  EXPECT_EQ(report->all.failed, 0);
}

TEST(LoadRun, DurationEndsIt) {
  Fake fake;
  LoadOptions options = to(fake, {{"base", 1}});
  options.num_prompts = 0;
  options.duration_s = 0.3;
  const auto report = run_load(options, {});
  ASSERT_TRUE(report.ok());
  EXPECT_GT(report->all.answered, 0);
  EXPECT_LT(report->seconds, 10);
}

TEST(LoadRun, NoServer) {
  LoadOptions options;
  options.targets = {{"base", 1}};
  options.num_prompts = 1;
  options.max_concurrency = 1;
  {
    Fake fake;
    options.base_url = fake.url();
  }
  const auto report = run_load(options, {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), Code::kNotFound) << report.status().message();
  options.base_url = "ftp://x";
  EXPECT_FALSE(run_load(options, {}).ok());
}

}  // namespace
}  // namespace cadre::server
