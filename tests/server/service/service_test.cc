// The server in this process, over real connections.
#include "server/service/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "io/json.h"
#include "server/http/http_client.h"
#include "support/status_matchers.h"

namespace cadre::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

std::string demo(const std::string& path = "") {
  return std::string(CADRE_SOURCE) + "/examples/models/qwen3_moe" + path;
}

struct Options {
  EngineOptions engine;
  ServeOptions serve;
};

Options plain() {
  Options o;
  o.engine.model_dir = demo();
  o.engine.rehearse = Rehearse::kOff;
  o.engine.adapters = {{.name = "elements", .dir = demo("/adapters/elements")}};
  o.serve.port = 0;
  o.serve.served_model_names = {"demo"};
  o.serve.log_level = "off";
  o.serve.max_num_seqs = o.engine.max_num_seqs;
  return o;
}

class Running {
 public:
  explicit Running(Options o) {
    auto engine = Engine::open(std::move(o.engine));
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    auto started = Service::start(std::move(o.serve), *std::move(engine), "1.2.3");
    EXPECT_TRUE(started.ok()) << started.status().message();
    service = *std::move(started);
    client = *HttpClient::create("http://" + service->address());
  }
  HttpAnswer call(const std::string& method, const std::string& target, const std::string& body = "",
                  const std::string& key = "") const {
    HttpCall call;
    call.method = method;
    call.target = target;
    call.body = body;
    if (!key.empty()) call.headers.emplace_back("Authorization", "Bearer " + key);
    Result<HttpAnswer> answer = client->fetch(std::move(call));
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return answer.ok() ? *std::move(answer) : HttpAnswer{};
  }
  HttpAnswer get(const std::string& target, const std::string& key = "") const { return call("GET", target, "", key); }
  HttpAnswer post(const std::string& target, const std::string& body, const std::string& key = "") const {
    return call("POST", target, body, key);
  }

  std::unique_ptr<Service> service;
  std::unique_ptr<HttpClient> client;
};

Json parsed(const HttpAnswer& answer) {
  auto json = Json::parse(answer.body, "answer");
  EXPECT_TRUE(json.ok()) << answer.body;
  return json.ok() ? *json : Json();
}

std::string completion(const std::string& model, int max_tokens, const std::string& more = "") {
  return R"({"model": ")" + model + R"(", "prompt": "gold", "temperature": 0, "ignore_eos": true, "max_tokens": )" +
         std::to_string(max_tokens) + more + "}";
}

std::string text_of(const HttpAnswer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  const auto choices = parsed(answer).get_array("choices");
  return choices.ok() && !choices->empty() ? *choices->front().get_string("text") : "";
}

TEST(Service, AnswersAndSaysWhatItIs) {
  const Running server(plain());
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/ready").status, 200);
  EXPECT_EQ(*parsed(server.get("/version")).get_string("version"), "1.2.3");
  const std::string models = server.get("/v1/models").body;
  EXPECT_THAT(models, HasSubstr("\"demo\""));
  EXPECT_THAT(models, HasSubstr("\"parent\": \"demo\""));
  EXPECT_THAT(models, Not(HasSubstr("/examples/"))) << "no paths";
  EXPECT_EQ(server.get("/v1/models/elements").status, 200);
  EXPECT_EQ(server.get("/v1/models/nothing").status, 404);
  EXPECT_THAT(server.get("/explain").body, HasSubstr("\"chosen\""));
  const std::string base = text_of(server.post("/v1/completions", completion("demo", 8)));
  EXPECT_EQ(text_of(server.post("/v1/completions", completion("", 8))), base);
  const std::string adapted = text_of(server.post("/v1/completions", completion("elements", 8)));
  EXPECT_NE(adapted, base);
  EXPECT_EQ(text_of(server.post("/v1/completions", completion("demo:elements", 8))), adapted) << "SGLang's form";
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("vllm:generation_tokens_total"));
  const HttpAnswer wrong = server.get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("Allow"), "POST");
  EXPECT_EQ(server.get("/nothing").status, 404);
  EXPECT_EQ(server.post("/v1/completions", completion("nothing", 8)).status, 404);
  EXPECT_EQ(server.post("/v1/completions", "{").status, 400);
  const HttpAnswer unknown = server.post("/v1/completions", completion("demo", 8, R"(, "temprature": 1)"));
  EXPECT_EQ(unknown.status, 400);
  EXPECT_THAT(unknown.body, HasSubstr("temprature"));
}

TEST(Service, StreamsAreTheWholeInPieces) {
  const Running server(plain());
  const std::string whole = text_of(server.post("/v1/completions", completion("elements", 12)));
  const HttpAnswer stream = server.post("/v1/completions", completion("elements", 12, R"(, "stream": true)"));
  EXPECT_THAT(std::string(stream.header("Content-Type")), HasSubstr("text/event-stream"));
  std::string joined;
  std::size_t at = 0;
  for (std::size_t end; (end = stream.body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string line = stream.body.substr(at + 6, end - at - 6);
    if (line == "[DONE]") break;
    const auto choices = Json::parse(line, "chunk")->get_array("choices");
    joined += *choices->front().get_string("text");
  }
  EXPECT_EQ(joined, whole);
  EXPECT_THAT(stream.body, ::testing::EndsWith("data: [DONE]\n\n"));
}

TEST(Service, TheContextIsALimitThatIsNamed) {
  Options o = plain();
  o.engine.max_model_len = 32;
  const Running server(std::move(o));
  const auto of = [&](int prompt) {
    std::string ids = "5";
    for (int i = 1; i < prompt; ++i) ids += ",5";
    return server.post("/v1/completions", R"({"prompt": [)" + ids + R"(], "max_tokens": 100, "ignore_eos": true})");
  };
  const HttpAnswer at = of(31);
  EXPECT_EQ(at.status, 200);
  EXPECT_THAT(at.body, HasSubstr("\"completion_tokens\": 1,"));
  const HttpAnswer over = of(32);
  EXPECT_EQ(over.status, 400);
  EXPECT_THAT(over.body, HasSubstr("context_length_exceeded"));
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt": [5], "logit_bias": {"999999": 1}})").status, 400);
}

TEST(Service, ClientsThatLeaveFreeTheirPlace) {
  const Running server(plain());
  for (int i = 0; i < 4; ++i) {
    std::atomic<bool> begun = false, over = false;
    HttpCall call;
    call.method = "POST";
    call.target = "/v1/completions";
    call.body = completion("demo", 400, R"(, "stream": true)");
    const std::uint64_t id = server.client->request(
        std::move(call), {.on_data = [&](std::string_view) { begun = true; }, .on_done = [&](Status) { over = true; }});
    while (!begun) std::this_thread::yield();
    server.client->cancel(id);
    while (!over) std::this_thread::yield();
  }
  for (int tries = 0;; ++tries) {
    const std::string metrics = server.get("/metrics").body;
    if (metrics.find("vllm:num_requests_running{model_name=\"demo\"} 0") != std::string::npos) break;
    ASSERT_LT(tries, 2000) << metrics;
  }
}

TEST(Service, KeysCoverEveryRouteButHealth) {
  Options o = plain();
  o.serve.api_keys = {"a-key"};
  o.serve.admin_key = "the-admin";
  const Running server(std::move(o));
  EXPECT_EQ(server.get("/health").status, 200);
  for (const char* route :
       {"/ready", "/version", "/metrics", "/explain", "/v1/models", "/v1/models/demo", "/nothing"}) {
    const HttpAnswer answer = server.get(route);
    EXPECT_EQ(answer.status, 401) << route;
    EXPECT_FALSE(answer.header("WWW-Authenticate").empty());
  }
  for (const char* route : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize",
                            "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/rescan_lora_adapters"}) {
    EXPECT_EQ(server.post(route, "{}").status, 401) << route;
    EXPECT_EQ(server.get(route).status, 401) << route << ": nor is the method told";
  }
  EXPECT_EQ(server.post("/v1/completions", completion("demo", 2), "a-key").status, 200);
  EXPECT_EQ(server.post("/v1/completions", completion("demo", 2), "another").status, 401);
  EXPECT_EQ(server.post("/v1/unload_lora_adapter", R"({"lora_name": "elements"})", "a-key").status, 403);
  EXPECT_EQ(server.post("/v1/unload_lora_adapter", R"({"lora_name": "elements"})", "the-admin").status, 200);
  EXPECT_EQ(server.post("/v1/completions", completion("elements", 2), "a-key").status, 404);
}

TEST(Service, AdaptersComeFromTheirFolderOnly) {
  const fs::path root = fs::path(::testing::TempDir()) / "cadre_service_adapters";
  fs::remove_all(root);
  fs::create_directories(root);
  fs::copy(demo("/adapters/spanish"), root / "spanish");
  Options o = plain();
  o.serve.admin_key = "the-admin";
  o.serve.adapter_dir = root.string();
  {
    const Running server(std::move(o));
    EXPECT_THAT(server.get("/v1/models").body, HasSubstr("\"spanish\"")) << "read at the start";
    EXPECT_EQ(server.post("/v1/load_lora_adapter", R"({"lora_name": "x", "lora_path": "spanish"})").status, 401);
    const auto load = [&](const std::string& name, const std::string& path, const std::string& more = "") {
      return server.post("/v1/load_lora_adapter",
                         R"({"lora_name": ")" + name + R"(", "lora_path": ")" + path + "\"" + more + "}", "the-admin");
    };
    const HttpAnswer loaded = load("x", "spanish");
    EXPECT_EQ(loaded.status, 200) << loaded.body;
    EXPECT_EQ(text_of(server.post("/v1/completions", completion("x", 8))),
              text_of(server.post("/v1/completions", completion("spanish", 8))));
    EXPECT_EQ(load("x", "spanish").status, 409);
    EXPECT_EQ(load("x", "spanish", R"(, "load_inplace": true)").status, 200);
    EXPECT_EQ(load("demo", "spanish").status, 409) << "the base model's name";
    const std::vector<std::string> outside = {"../elements", "/etc",    "spanish/../../x",         "",
                                              ".",           "nothing", demo("/adapters/elements")};
    for (const std::string& path : outside) {
      const HttpAnswer answer = load("y", path);
      EXPECT_GE(answer.status, 400) << path;
      EXPECT_LT(answer.status, 500) << path;
    }
    // Truncated, then deleted: the loaded ones go on.
    fs::copy(demo("/adapters/jargon"), root / "broken");
    fs::resize_file(root / "broken" / "adapter_model.safetensors", 1000);
    const HttpAnswer broken = load("broken", "broken");
    EXPECT_GE(broken.status, 400);
    EXPECT_THAT(broken.body, Not(HasSubstr("/proc/self")));
    const std::string before = text_of(server.post("/v1/completions", completion("spanish", 8)));
    fs::remove_all(root / "spanish");
    EXPECT_EQ(text_of(server.post("/v1/completions", completion("spanish", 8))), before);
    fs::copy(demo("/adapters/jargon"), root / "jargon");
    const Json change = parsed(server.post("/v1/rescan_lora_adapters", "", "the-admin"));
    EXPECT_THAT(change.dump(), HasSubstr("\"loaded\": [\"jargon\"]"));
    EXPECT_THAT(change.dump(), HasSubstr("spanish"));
    EXPECT_EQ(server.post("/v1/completions", completion("spanish", 8)).status, 404);
    EXPECT_EQ(server.post("/v1/completions", completion("jargon", 8)).status, 200);
  }
  fs::remove_all(root);
}

TEST(Service, TooManyWaitersAreTurnedAway) {
  Options o = plain();
  o.engine.max_num_seqs = 1;
  o.serve.max_num_seqs = 1;
  o.serve.max_queued_requests = 1;
  const Running server(std::move(o));
  std::atomic<int> ok = 0, turned_away = 0, done = 0;
  constexpr int kCalls = 12;
  for (int i = 0; i < kCalls; ++i) {
    HttpCall call;
    call.method = "POST";
    call.target = "/v1/completions";
    call.body = completion("demo", 300);
    server.client->request(std::move(call), {.on_header =
                                                 [&](int status, const HttpHeaders& headers) {
                                                   ok += status == 200;
                                                   bool retry = false;
                                                   for (const auto& [name, value] : headers)
                                                     retry |= name == "Retry-After";
                                                   turned_away += status == 429 && retry;
                                                 },
                                             .on_data = [](std::string_view) {},
                                             .on_done = [&](Status) { ++done; }});
  }
  while (done < kCalls) std::this_thread::yield();
  EXPECT_GE(ok, 2);
  EXPECT_GE(turned_away, 1);
  EXPECT_EQ(ok + turned_away, kCalls);
}

TEST(Service, DrainsAndStops) {
  Running server(plain());
  std::atomic<bool> begun = false;
  std::atomic<int> done = 0;
  std::string body;
  HttpCall call;
  call.method = "POST";
  call.target = "/v1/completions";
  call.body = completion("demo", 200, R"(, "stream": true)");
  server.client->request(std::move(call), {.on_data =
                                               [&](std::string_view bytes) {
                                                 body += bytes;
                                                 begun = true;
                                               },
                                           .on_done = [&](Status status) { done = status.ok() ? 1 : 2; }});
  while (!begun) std::this_thread::yield();
  server.service->drain();
  EXPECT_TRUE(server.service->stop(60));
  while (done == 0) std::this_thread::yield();
  EXPECT_EQ(done, 1);
  EXPECT_THAT(body, ::testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_THAT(body, HasSubstr("\"length\"")) << "it was not cut";
}

TEST(Service, RefusesWhatCannotStart) {
  Options o = plain();
  o.serve.adapter_dir = "/nothing/there";
  auto engine = Engine::open(o.engine);
  ASSERT_TRUE(engine.ok());
  EXPECT_THAT(Service::start(o.serve, *std::move(engine), "1").status(), FailsWith(Code::kNotFound, "--adapter-dir"));
  o = plain();
  o.serve.log_level = "loud";
  engine = Engine::open(o.engine);
  ASSERT_TRUE(engine.ok());
  EXPECT_THAT(Service::start(o.serve, *std::move(engine), "1").status(), FailsWith(Code::kInvalidArgument, "loud"));
}

}  // namespace
}  // namespace cadre::server
