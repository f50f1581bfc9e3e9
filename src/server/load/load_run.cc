#include "server/load/load_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "io/json.h"
#include "server/http/http_client.h"
#include "server/load/load_call.h"
#include "server/load/prompts.h"
#include "server/load/schedule.h"

namespace cadre::server {
namespace {

using Clock = std::chrono::steady_clock;

// Without a limit of its own the load still keeps to what a process may open.
constexpr int kMaxConnections = 4096;
constexpr int kSampleWords = 200;                        // asked of /tokenize once
constexpr double kUsualTokensPerWord = 1.3;              // of English with large vocabularies
constexpr auto kGlance = std::chrono::milliseconds(50);  // between looks at `stop`

// "http://host:8000" of "http://host:8000/v1/".
std::string server_url(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  if (url.ends_with("/v1")) url.resize(url.size() - 3);
  return url;
}

class Load {
 public:
  Load(const LoadOptions& options, const LoadHooks& hooks)
      : options_(options), hooks_(hooks), random_(options.seed), arrivals_(options.request_rate, options.seed + 1) {}

  Result<LoadReport> run() {
    HttpClientOptions client_options;
    client_options.max_connections = options_.max_concurrency > 0 ? options_.max_concurrency : kMaxConnections;
    CADRE_ASSIGN(client_, HttpClient::create(server_url(options_.base_url), client_options));
    if (options_.prompts_file.empty()) {
      CADRE_TRY(measure_words());
    } else {
      CADRE_ASSIGN(prompts_, read_prompts(options_.prompts_file, options_.chat));
    }
    start_ = Clock::now();
    send_all();
    const bool complete = wait([this] { return active_ == 0; });
    {
      const std::lock_guard lock(mutex_);
      cancelling_ = true;
    }
    client_.reset();  // its thread is gone, and with it whoever else touches the records
    LoadReport report = make_report(options_, records_, !complete || stopped_);
    report.notes = std::move(notes_);
    return report;
  }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  HttpCall call(const std::string& target, std::string body) const {
    HttpCall call;
    call.method = "POST";
    call.target = target;
    call.headers = {{"Content-Type", "application/json"}};
    if (!options_.api_key.empty()) call.headers.emplace_back("Authorization", "Bearer " + options_.api_key);
    call.body = std::move(body);
    call.timeout_s = call.idle_timeout_s = options_.timeout_s;
    return call;
  }

  // How many tokens a word of ours is, by the server's /tokenize where it has one.
  Status measure_words() {
    LoadRandom random(options_.seed + 2);
    Json body = Json::object({{"model", options_.targets.front().name},
                              {"prompt", random_words(kSampleWords, random)},
                              {"add_special_tokens", false}});
    CADRE_ASSIGN(const HttpAnswer answer, client_->fetch(call("/tokenize", body.dump())));
    if (answer.status == 200) {
      const Result<Json> json = Json::parse(answer.body, "/tokenize");
      const Result<std::int64_t> count = json.ok() ? json->get_int("count", 1, 1 << 20) : json.status();
      if (count.ok()) {
        tokens_per_word_ = static_cast<double>(*count) / kSampleWords;
        return {};
      }
    }
    notes_.emplace_back(
        "the server's /tokenize gives no count, so the lengths of prompts are a guess: 1.3 tokens a word");
    return {};
  }

  bool stopped() {
    if (!stopped_ && hooks_.stop && hooks_.stop()) stopped_ = true;
    return stopped_;
  }

  void show() {
    if (!hooks_.progress) return;
    LoadProgress progress;
    {
      const std::lock_guard lock(mutex_);
      progress = progress_;
    }
    hooks_.progress(progress);
  }

  // False where the load was stopped first.
  bool wait(const std::function<bool()>& ready) {
    while (!stopped()) {
      {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, kGlance, ready)) return true;
      }
      show();
    }
    return false;
  }

  bool wait_until(double due) {
    while (!stopped()) {
      const double left = due - now();
      if (left <= 0) return true;
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::min<Clock::duration>(kGlance, std::chrono::duration_cast<Clock::duration>(
                                                                     std::chrono::duration<double>(left))));
      lock.unlock();
      show();
    }
    return false;
  }

  void send_all() {
    const bool open = options_.request_rate > 0;
    for (std::int64_t i = 0; options_.num_prompts == 0 || i < options_.num_prompts; ++i) {
      double due = open ? arrivals_.next() : 0;
      if (open && !wait_until(due)) return;
      if (options_.max_concurrency > 0 && !wait([this] { return active_ < options_.max_concurrency; })) return;
      if (stopped()) return;
      if (!open) due = now();
      if (options_.duration_s > 0 && std::max(due, now()) >= options_.duration_s) return;
      send(i, due);
    }
  }

  void send(std::int64_t i, double due) {
    LoadRecord record;
    record.target = pick_target(options_.targets, random_);
    record.due = due;
    LoadPrompt prompt;
    int max_tokens = random_.in(options_.output_len);
    if (prompts_.empty()) {
      const double words = random_.in(options_.input_len) / tokens_per_word_;
      prompt.text = random_words(std::max(1, static_cast<int>(std::lround(words))), random_);
    } else {
      prompt = prompts_[static_cast<std::size_t>(i) % prompts_.size()];
      if (prompt.max_tokens > 0) max_tokens = prompt.max_tokens;
    }
    std::string body = request_body(options_, options_.targets[record.target].name, prompt, max_tokens);
    record.sent = record.last = now();
    const auto state = std::make_shared<LoadCall>(std::move(record));
    HttpCallbacks callbacks;
    callbacks.on_header = [state](int status, const HttpHeaders&) { state->header(status); };
    callbacks.on_data = [this, state](std::string_view bytes) { state->data(bytes, now()); };
    callbacks.on_done = [this, state](const Status& status) { done(state->done(status, now()), status); };
    {
      const std::lock_guard lock(mutex_);
      ++active_;
      ++progress_.sent;
    }
    client_->request(call(options_.chat ? "/v1/chat/completions" : "/v1/completions", std::move(body)),
                     std::move(callbacks));
  }

  void done(LoadRecord record, const Status& status) {
    const std::lock_guard lock(mutex_);
    record.cancelled = cancelling_ && status.code() == Code::kCancelled;
    ++(record.error.empty() ? progress_.answered : progress_.failed);
    records_.push_back(std::move(record));
    --active_;
    changed_.notify_one();
  }

  const LoadOptions& options_;
  const LoadHooks& hooks_;
  LoadRandom random_;
  Arrivals arrivals_;
  std::vector<LoadPrompt> prompts_;
  double tokens_per_word_ = kUsualTokensPerWord;
  std::vector<std::string> notes_;
  bool stopped_ = false;
  Clock::time_point start_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int active_ = 0;
  bool cancelling_ = false;
  LoadProgress progress_;
  std::vector<LoadRecord> records_;
  std::unique_ptr<HttpClient> client_;  // last: its thread uses the others
};

}  // namespace

Result<LoadReport> run_load(const LoadOptions& options, const LoadHooks& hooks) { return Load(options, hooks).run(); }

}  // namespace cadre::server
