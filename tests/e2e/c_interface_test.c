// Checks cadre.h as a C program sees it: what it refuses and how, what it lends and gives. package_test.sh builds it
// against an installed libcadre.
//
//   c_interface_test MODEL_DIR VERSION
#include <cadre/cadre.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

static atomic_int failures = 0;

#define CHECK(condition)                                                                         \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      printf("FAILED: line %d: %s; last error: %s\n", __LINE__, #condition, cadre_last_error()); \
      ++failures;                                                                                \
    }                                                                                            \
  } while (0)

// The call fails with this code, and the message holds this text.
#define REFUSED(call, code, text)                      \
  do {                                                 \
    CHECK((call) == (code));                           \
    CHECK(strstr(cadre_last_error(), (text)) != NULL); \
  } while (0)

static const char kSpec[] = "{\"experts\": 128, \"top_k\": 8, \"hidden\": 2048, \"intermediate\": 768}";

static void check_null_arguments(cadre_engine* engine) {
  const cadre_engine_options options = {.struct_size = sizeof options};
  const int32_t id = 1;
  const cadre_message message = {.role = "user", .content = NULL};
  cadre_engine* opened = NULL;
  uint64_t request = 0;
  const cadre_event* const* events = NULL;
  size_t count = 0;
  int32_t* ids = NULL;
  char* text = NULL;

  REFUSED(cadre_engine_open(NULL, &opened), CADRE_INVALID_ARGUMENT, "engine_options is NULL");
  REFUSED(cadre_engine_open(&options, NULL), CADRE_INVALID_ARGUMENT, "engine is NULL");
  REFUSED(cadre_engine_open(&options, &opened), CADRE_INVALID_ARGUMENT, "model_dir is NULL");
  CHECK(opened == NULL);
  REFUSED(cadre_engine_load_adapter(NULL, "a", "d", NULL), CADRE_INVALID_ARGUMENT, "engine is NULL");
  REFUSED(cadre_engine_load_adapter(engine, NULL, "d", NULL), CADRE_INVALID_ARGUMENT, "name is NULL");
  REFUSED(cadre_engine_load_adapter(engine, "a", NULL, NULL), CADRE_INVALID_ARGUMENT, "dir is NULL");
  REFUSED(cadre_engine_unload_adapter(NULL, "a"), CADRE_INVALID_ARGUMENT, "engine is NULL");
  REFUSED(cadre_engine_unload_adapter(engine, NULL), CADRE_INVALID_ARGUMENT, "name is NULL");
  REFUSED(cadre_engine_info_json(NULL, &text), CADRE_INVALID_ARGUMENT, "engine is NULL");
  REFUSED(cadre_engine_info_json(engine, NULL), CADRE_INVALID_ARGUMENT, "json is NULL");
  REFUSED(cadre_engine_submit_text(NULL, "a", NULL, NULL, &request), CADRE_INVALID_ARGUMENT, "engine is NULL");
  REFUSED(cadre_engine_submit_text(engine, NULL, NULL, NULL, &request), CADRE_INVALID_ARGUMENT, "text is NULL");
  REFUSED(cadre_engine_submit_text(engine, "a", NULL, NULL, NULL), CADRE_INVALID_ARGUMENT, "request is NULL");
  REFUSED(cadre_engine_submit_chat(NULL, &message, 0, NULL, NULL, &request), CADRE_INVALID_ARGUMENT, "engine is NULL");
  REFUSED(cadre_engine_submit_chat(engine, NULL, 1, NULL, NULL, &request), CADRE_INVALID_ARGUMENT, "messages is NULL");
  REFUSED(cadre_engine_submit_chat(engine, &message, 1, NULL, NULL, &request), CADRE_INVALID_ARGUMENT,
          "messages[0].content is NULL");
  REFUSED(cadre_engine_submit_ids(NULL, &id, 1, NULL, NULL, &request), CADRE_INVALID_ARGUMENT, "engine is NULL");
  REFUSED(cadre_engine_submit_ids(engine, NULL, 1, NULL, NULL, &request), CADRE_INVALID_ARGUMENT, "ids is NULL");
  REFUSED(cadre_engine_submit_ids(engine, NULL, 0, NULL, NULL, &request), CADRE_INVALID_ARGUMENT, "prompt is empty");
  REFUSED(cadre_engine_step(NULL, &events, &count), CADRE_INVALID_ARGUMENT, "engine is NULL");
  REFUSED(cadre_engine_step(engine, NULL, &count), CADRE_INVALID_ARGUMENT, "events is NULL");
  REFUSED(cadre_engine_step(engine, &events, NULL), CADRE_INVALID_ARGUMENT, "count is NULL");
  REFUSED(cadre_engine_cancel(NULL, 1), CADRE_INVALID_ARGUMENT, "engine is NULL");
  REFUSED(cadre_engine_encode(NULL, "a", 1, &ids, &count), CADRE_INVALID_ARGUMENT, "engine is NULL");
  REFUSED(cadre_engine_encode(engine, NULL, 1, &ids, &count), CADRE_INVALID_ARGUMENT, "text is NULL");
  REFUSED(cadre_engine_encode(engine, "a", 1, NULL, &count), CADRE_INVALID_ARGUMENT, "ids is NULL");
  REFUSED(cadre_engine_encode(engine, "a", 1, &ids, NULL), CADRE_INVALID_ARGUMENT, "count is NULL");
  REFUSED(cadre_engine_decode(NULL, &id, 1, 1, &text, NULL), CADRE_INVALID_ARGUMENT, "engine is NULL");
  REFUSED(cadre_engine_decode(engine, NULL, 1, 1, &text, NULL), CADRE_INVALID_ARGUMENT, "ids is NULL");
  REFUSED(cadre_engine_decode(engine, &id, 1, 1, NULL, NULL), CADRE_INVALID_ARGUMENT, "text is NULL");
  REFUSED(cadre_select_json(NULL, NULL, NULL, &text), CADRE_INVALID_ARGUMENT, "spec_json is NULL");
  REFUSED(cadre_select_json(kSpec, NULL, NULL, NULL), CADRE_INVALID_ARGUMENT, "json is NULL");
  REFUSED(cadre_check_adapter_json(NULL, "d", NULL, &text), CADRE_INVALID_ARGUMENT, "model_dir is NULL");
  REFUSED(cadre_check_adapter_json("m", NULL, NULL, &text), CADRE_INVALID_ARGUMENT, "adapter_dir is NULL");
  REFUSED(cadre_check_adapter_json("m", "d", NULL, NULL), CADRE_INVALID_ARGUMENT, "json is NULL");
  CHECK(text == NULL && ids == NULL && request == 0 && events == NULL);
  CHECK(cadre_engine_idle(NULL) == 1);
  cadre_engine_close(NULL);
  cadre_string_free(NULL);
  cadre_ids_free(NULL);
}

// Programs built with an older or a newer header.
static void check_struct_sizes(cadre_engine* engine, const char* model_dir) {
  uint64_t request = 0;
  cadre_sampling sampling = {0};
  REFUSED(cadre_engine_submit_text(engine, "a", NULL, &sampling, &request), CADRE_INVALID_ARGUMENT, "struct_size is 0");

  struct {
    cadre_sampling known;
    int32_t added[4];
  } newer = {.known = {.struct_size = sizeof newer, .set = CADRE_SET_MAX_TOKENS, .max_tokens = 1}};
  CHECK(cadre_engine_submit_text(engine, "a", NULL, &newer.known, &request) == CADRE_OK);
  CHECK(cadre_engine_cancel(engine, request) == CADRE_OK);
  newer.added[2] = 1;
  REFUSED(cadre_engine_submit_text(engine, "a", NULL, &newer.known, &request), CADRE_INVALID_ARGUMENT, "does not know");
  sampling.struct_size = sizeof sampling;
  sampling.set = 1u << 31;
  REFUSED(cadre_engine_submit_text(engine, "a", NULL, &sampling, &request), CADRE_INVALID_ARGUMENT, "sampling.set");

  // Only the fields within struct_size are read: the wild values behind it are not.
  cadre_engine_options options;
  memset(&options, 0x7f, sizeof options);
  options.struct_size = offsetof(cadre_engine_options, backend);
  options.model_dir = model_dir;
  cadre_engine* opened = NULL;
  CHECK(cadre_engine_open(&options, &opened) == CADRE_OK);
  cadre_engine_close(opened);
}

static void check_refusals(cadre_engine* engine, const char* model_dir) {
  uint64_t request = 0;
  cadre_engine* opened = NULL;
  char* json = NULL;
  const int32_t bad_id = 1 << 30;
  REFUSED(cadre_engine_submit_text(engine, "a", "nobody", NULL, &request), CADRE_NOT_FOUND, "nobody");
  REFUSED(cadre_engine_submit_ids(engine, &bad_id, 1, NULL, NULL, &request), CADRE_INVALID_ARGUMENT, "1073741824");
  REFUSED(cadre_engine_cancel(engine, 999999), CADRE_NOT_FOUND, "999999");
  REFUSED(cadre_engine_unload_adapter(engine, "nobody"), CADRE_NOT_FOUND, "nobody");
  REFUSED(cadre_engine_load_adapter(engine, "x", "/nonexistent", NULL), CADRE_NOT_FOUND, "/nonexistent");

  const cadre_engine_options unknown = {.struct_size = sizeof unknown, .model_dir = model_dir, .backend = "require x"};
  REFUSED(cadre_engine_open(&unknown, &opened), CADRE_INVALID_ARGUMENT, "'x'");
  const cadre_engine_options threads = {.struct_size = sizeof threads, .model_dir = model_dir, .threads = -1};
  REFUSED(cadre_engine_open(&threads, &opened), CADRE_INVALID_ARGUMENT, "-1");
  const cadre_engine_options rehearse = {.struct_size = sizeof rehearse, .model_dir = model_dir, .rehearse = 3};
  REFUSED(cadre_engine_open(&rehearse, &opened), CADRE_INVALID_ARGUMENT, "rehearse is 3");
  const cadre_engine_options field = {
      .struct_size = sizeof field, .model_dir = model_dir, .hf_overrides = "{\"new_scale\": 2.0}"};
  REFUSED(cadre_engine_open(&field, &opened), CADRE_INVALID_ARGUMENT, "nothing reads 'new_scale' (2.0)");
  const cadre_engine_options list = {.struct_size = sizeof list, .model_dir = model_dir, .hf_overrides = "[]"};
  REFUSED(cadre_engine_open(&list, &opened), CADRE_INVALID_ARGUMENT, "--hf-overrides is an array");
  CHECK(opened == NULL);

  const char* const stop[] = {"end", NULL};
  const cadre_sampling null_stop = {.struct_size = sizeof null_stop, .stop = stop, .stop_count = 2};
  REFUSED(cadre_engine_submit_text(engine, "a", NULL, &null_stop, &request), CADRE_INVALID_ARGUMENT, "stop[1] is NULL");
  const cadre_sampling no_stop = {.struct_size = sizeof no_stop, .stop_count = 1};
  REFUSED(cadre_engine_submit_text(engine, "a", NULL, &no_stop, &request), CADRE_INVALID_ARGUMENT, "stop is NULL");
  const cadre_sampling many = {.struct_size = sizeof many, .stop = stop, .stop_count = SIZE_MAX};
  REFUSED(cadre_engine_submit_text(engine, "a", NULL, &many, &request), CADRE_LIMIT_EXCEEDED, "stop");
  const int32_t twice[] = {1, 1};
  const float bias[] = {1, 2};
  const cadre_sampling biased = {
      .struct_size = sizeof biased, .logit_bias_ids = twice, .logit_bias = bias, .logit_bias_count = 2};
  REFUSED(cadre_engine_submit_text(engine, "a", NULL, &biased, &request), CADRE_INVALID_ARGUMENT, "twice");
  const cadre_sampling cold = {.struct_size = sizeof cold, .set = CADRE_SET_TEMPERATURE, .temperature = -1};
  REFUSED(cadre_engine_submit_text(engine, "a", NULL, &cold, &request), CADRE_INVALID_ARGUMENT, "temperature");

  REFUSED(cadre_select_json("{\"experts\": ", NULL, NULL, &json), CADRE_INVALID_ARGUMENT, "layer spec");
  REFUSED(cadre_select_json("{\"wings\": 2}", NULL, NULL, &json), CADRE_INVALID_ARGUMENT, "wings");
  REFUSED(cadre_select_json(kSpec, NULL, "perhaps", &json), CADRE_INVALID_ARGUMENT, "perhaps");
  CHECK(json == NULL);
  REFUSED(cadre_check_adapter_json("/nonexistent", "/nonexistent", NULL, &json), CADRE_NOT_FOUND, "/nonexistent");
  CHECK(json == NULL);
  REFUSED(cadre_check_adapter_json(model_dir, "/nonexistent", NULL, &json), CADRE_NOT_FOUND, "/nonexistent");
  CHECK(json == NULL);

  char dir[4096];
  snprintf(dir, sizeof dir, "%s/adapters/elements", model_dir);
  CHECK(cadre_check_adapter_json(model_dir, dir, NULL, &json) == CADRE_OK);
  CHECK(json != NULL && strstr(json, "\"usable\": true") != NULL);
  cadre_string_free(json);
  json = NULL;
  snprintf(dir, sizeof dir, "%s/../nemotron_h/adapters/elements", model_dir);  // made for another model
  CHECK(cadre_check_adapter_json(model_dir, dir, NULL, &json) == CADRE_OK);
  CHECK(json != NULL && strstr(json, "\"usable\": false") != NULL && strstr(json, "error") != NULL);
  cadre_string_free(json);
}

// "exclude A,B,..." of all backends that a selection names.
static void exclude_all(const char* json, char* policy, size_t size) {
  static const char key[] = "\"backend\": \"";
  size_t used = (size_t)snprintf(policy, size, "exclude ");
  for (const char* at = strstr(json, key); at != NULL; at = strstr(at, key)) {
    at += sizeof key - 1;
    const int length = (int)strcspn(at, "\"");
    used += (size_t)snprintf(policy + used, size - used, "%s%.*s", used > 8 ? "," : "", length, at);
    CHECK(used < size);
    if (used >= size) return;
  }
}

static void check_select(void) {
  char* json = NULL;
  CHECK(cadre_select_json(kSpec, NULL, NULL, &json) == CADRE_OK);
  CHECK(json != NULL && strstr(json, "\"chosen\": \"") != NULL && strstr(json, "cpu_reference") != NULL);
  char exclude[1024];
  exclude_all(json, exclude, sizeof exclude);
  cadre_string_free(json);
  json = NULL;

  // All backends excluded: an error, and still every candidate with its reasons.
  cadre_deployment deployment = {.struct_size = sizeof deployment, .max_adapters = 2, .max_adapter_rank = 16};
  CHECK(cadre_select_json(kSpec, &deployment, exclude, &json) == CADRE_NO_BACKEND);
  CHECK(json != NULL && strstr(json, "\"chosen\": null") != NULL && strstr(json, "\"code\": \"excluded\"") != NULL);
  cadre_string_free(json);
  json = NULL;
  deployment.max_adapter_rank = 0;
  REFUSED(cadre_select_json(kSpec, &deployment, NULL, &json), CADRE_INVALID_ARGUMENT, "max_adapter_rank is 0");
  CHECK(json == NULL);
}

static void check_text(cadre_engine* engine) {
  static const char kText[] = "caf\xc3\xa9 \xe2\x82\xac 79";
  int32_t* ids = NULL;
  size_t count = 0, size = 0;
  char* text = NULL;
  CHECK(cadre_engine_encode(engine, kText, 0, &ids, &count) == CADRE_OK && count > 0);
  CHECK(cadre_engine_decode(engine, ids, count, 1, &text, &size) == CADRE_OK);
  CHECK(text != NULL && size == strlen(kText) && strcmp(text, kText) == 0);
  cadre_string_free(text);
  cadre_ids_free(ids);
  ids = NULL;
  CHECK(cadre_engine_encode(engine, "", 0, &ids, &count) == CADRE_OK && count == 0 && ids != NULL);
  cadre_ids_free(ids);
}

// What one request brings until the engine is idle. The text is kept up to `most` bytes.
typedef struct answer {
  char text[512];
  int tokens, finishes;
  cadre_finish finish;
} answer;

static void drain(cadre_engine* engine, uint64_t first, answer* answers, size_t most) {
  while (!cadre_engine_idle(engine)) {
    const cadre_event* const* events = NULL;
    size_t count = 0;
    CHECK(cadre_engine_step(engine, &events, &count) == CADRE_OK);
    for (size_t i = 0; i < count; ++i) {
      const cadre_event* e = events[i];
      CHECK(e->request >= first && e->request < first + most);
      if (e->request < first || e->request >= first + most) return;
      answer* a = &answers[e->request - first];
      CHECK(e->text != NULL && strlen(e->text) == e->text_size && e->error_message != NULL);
      if (strlen(a->text) + e->text_size < sizeof a->text) strcat(a->text, e->text);
      a->tokens += e->token >= 0;
      if (e->finish != CADRE_FINISH_NONE) {
        a->finish = e->finish;
        ++a->finishes;
      }
    }
  }
}

static void check_requests(cadre_engine* engine, const char* model_dir) {
  char dir[4096];
  snprintf(dir, sizeof dir, "%s/adapters/elements", model_dir);
  CHECK(cadre_engine_load_adapter(engine, "elements", dir, NULL) == CADRE_OK);
  char* json = NULL;
  CHECK(cadre_engine_info_json(engine, &json) == CADRE_OK);
  CHECK(json != NULL && strstr(json, "qwen3_moe") != NULL && strstr(json, "\"elements\"") != NULL &&
        strstr(json, "cpu_reference") != NULL);
  cadre_string_free(json);

  // One batch: the adapter, the base, a stop string, log-probabilities, one that is cancelled.
  const cadre_message message = {.role = "user", .content = "Element: gold"};
  const cadre_sampling greedy = {.struct_size = sizeof greedy,
                                 .set = CADRE_SET_TEMPERATURE | CADRE_SET_MAX_TOKENS | CADRE_SET_SEED,
                                 .max_tokens = 24,
                                 .seed = 7};
  const char* const stop[] = {", number"};
  cadre_sampling stopped = greedy;
  stopped.stop = stop;
  stopped.stop_count = 1;
  uint64_t id[4] = {0};
  CHECK(cadre_engine_submit_chat(engine, &message, 1, "elements", &greedy, &id[0]) == CADRE_OK);
  CHECK(cadre_engine_submit_chat(engine, &message, 1, "", &greedy, &id[1]) == CADRE_OK);
  CHECK(cadre_engine_submit_chat(engine, &message, 1, "elements", &stopped, &id[2]) == CADRE_OK);
  CHECK(cadre_engine_submit_chat(engine, &message, 1, "elements", &greedy, &id[3]) == CADRE_OK);
  CHECK(id[0] > 0 && id[1] == id[0] + 1 && id[2] == id[0] + 2 && id[3] == id[0] + 3);
  CHECK(!cadre_engine_idle(engine));
  CHECK(cadre_engine_cancel(engine, id[3]) == CADRE_OK);
  CHECK(cadre_engine_unload_adapter(engine, "elements") == CADRE_OK);  // those that run keep it
  answer answers[4];
  memset(answers, 0, sizeof answers);
  drain(engine, id[0], answers, 4);
  CHECK(strcmp(answers[0].text, "Au, number 79") == 0 && answers[0].finish == CADRE_FINISH_STOP);
  CHECK(strcmp(answers[1].text, "Au, number 79") != 0 && answers[1].tokens > 0);
  CHECK(strcmp(answers[2].text, "Au") == 0 && answers[2].finish == CADRE_FINISH_STOP);
  CHECK(answers[3].tokens == 0 && answers[3].finish == CADRE_FINISH_CANCELLED);
  for (int i = 0; i < 4; ++i) CHECK(answers[i].finishes == 1);
  REFUSED(cadre_engine_submit_chat(engine, &message, 1, "elements", &greedy, &id[0]), CADRE_NOT_FOUND, "elements");

  // An idle engine steps without effect.
  const cadre_event* const* events = NULL;
  size_t count = 1;
  CHECK(cadre_engine_step(engine, &events, &count) == CADRE_OK && count == 0);
}

static void check_logprobs(cadre_engine* engine) {
  const cadre_sampling sampling = {.struct_size = sizeof sampling,
                                   .set = CADRE_SET_TEMPERATURE | CADRE_SET_MAX_TOKENS | CADRE_SET_LOGPROBS,
                                   .max_tokens = 1,
                                   .logprobs = 2};
  int32_t* ids = NULL;
  size_t id_count = 0;
  uint64_t request = 0;
  CHECK(cadre_engine_encode(engine, "The", 1, &ids, &id_count) == CADRE_OK);
  CHECK(cadre_engine_submit_ids(engine, ids, id_count, NULL, &sampling, &request) == CADRE_OK);
  cadre_ids_free(ids);
  const cadre_event* const* events = NULL;
  size_t count = 0;
  CHECK(cadre_engine_step(engine, &events, &count) == CADRE_OK && count == 1);
  if (count != 1) return;
  CHECK(events[0]->request == request && events[0]->finish != CADRE_FINISH_NONE);
  CHECK(events[0]->logprob_count == 3);  // of the token, then of the two most likely
  if (events[0]->logprob_count != 3) return;
  const cadre_token_chance* chances = events[0]->logprobs;
  CHECK(chances[0].id == events[0]->token && chances[0].logprob <= 0 && chances[1].logprob >= chances[2].logprob);
}

// Opens an engine of its own and asks it.
static int ask_alone(void* model_dir) {
  CHECK(strcmp(cadre_last_error(), "") == 0);  // whatever other threads met
  const cadre_engine_options options = {.struct_size = sizeof options, .model_dir = model_dir};
  cadre_engine* engine = NULL;
  REFUSED(cadre_engine_cancel(NULL, 1), CADRE_INVALID_ARGUMENT, "engine is NULL");
  CHECK(cadre_engine_open(&options, &engine) == CADRE_OK);
  if (engine == NULL) return 1;
  check_requests(engine, model_dir);
  cadre_engine_close(engine);
  return 0;
}

// Two engines at once on two threads, each with its own last error.
static void check_threads(char* model_dir) {
  REFUSED(cadre_select_json("{\"wings\": 2}", NULL, NULL, &(char*){NULL}), CADRE_INVALID_ARGUMENT, "wings");
  thrd_t threads[2];
  for (int i = 0; i < 2; ++i) CHECK(thrd_create(&threads[i], ask_alone, model_dir) == thrd_success);
  for (int i = 0; i < 2; ++i) {
    int status = -1;
    CHECK(thrd_join(threads[i], &status) == thrd_success && status == 0);
  }
  CHECK(strstr(cadre_last_error(), "wings") != NULL);
}

static void count_progress(double share, void* user) {
  double* last = user;
  CHECK(share >= *last && share <= 1);
  *last = share;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: c_interface_test MODEL_DIR VERSION\n");
    return 2;
  }
  CHECK(strcmp(cadre_last_error(), "") == 0);
  CHECK(strcmp(cadre_version(), argv[2]) == 0);
  CHECK(strcmp(cadre_code_name(CADRE_OK), "ok") == 0 && strcmp(cadre_code_name(CADRE_INTERNAL), "internal") == 0);
  CHECK(strcmp(cadre_code_name(99), "unknown") == 0 && strcmp(cadre_code_name(-1), "unknown") == 0);

  double progress = 0;
  const cadre_engine_options options = {.struct_size = sizeof options,
                                        .model_dir = argv[1],
                                        .threads = 2,
                                        .progress = count_progress,
                                        .progress_user = &progress};
  cadre_engine* engine = NULL;
  CHECK(cadre_engine_open(&options, &engine) == CADRE_OK);
  if (engine == NULL) return 1;
  CHECK(progress == 1);
  check_null_arguments(engine);
  check_struct_sizes(engine, argv[1]);
  answer cancelled = {0};
  drain(engine, 1, &cancelled, 1);  // what check_struct_sizes queued and cancelled
  CHECK(cancelled.finish == CADRE_FINISH_CANCELLED);
  check_refusals(engine, argv[1]);
  check_select();
  check_text(engine);
  check_requests(engine, argv[1]);
  check_logprobs(engine);

  check_threads(argv[1]);

  uint64_t request = 0;  // closed while a request runs
  CHECK(cadre_engine_submit_text(engine, "The", NULL, NULL, &request) == CADRE_OK);
  cadre_engine_close(engine);
  printf("%s\n", failures == 0 ? "the C interface is right" : "FAILED");
  return failures != 0;
}
