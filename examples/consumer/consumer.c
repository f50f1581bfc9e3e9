// The same as consumer.cc, in C: asks a model with an adapter a question, then asks the gate which backend would run a
// layer.
//
//   consumer_c MODEL_DIR ADAPTER_DIR LAYER.json
#include <cadre/cadre.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(cadre_code code) {
  fprintf(stderr, "consumer_c: %s: %s\n", cadre_code_name(code), cadre_last_error());
  return 1;
}

static int ask(cadre_engine* engine, const char* adapter_dir) {
  cadre_code code = cadre_engine_load_adapter(engine, "elements", adapter_dir, NULL);
  if (code != CADRE_OK) return fail(code);

  const cadre_message message = {.role = "user", .content = "Element: gold"};
  const cadre_sampling sampling = {
      .struct_size = sizeof sampling,
      .set = CADRE_SET_TEMPERATURE | CADRE_SET_MAX_TOKENS,
      .temperature = 0,  // greedy
      .max_tokens = 32,
  };
  uint64_t request = 0;
  code = cadre_engine_submit_chat(engine, &message, 1, "elements", &sampling, &request);
  if (code != CADRE_OK) return fail(code);

  // Each step runs one batch and lends what is new, until the next step.
  while (!cadre_engine_idle(engine)) {
    const cadre_event* const* events = NULL;
    size_t count = 0;
    code = cadre_engine_step(engine, &events, &count);
    if (code != CADRE_OK) return fail(code);
    for (size_t i = 0; i < count; ++i) {
      if (events[i]->finish == CADRE_FINISH_ERROR) {
        fprintf(stderr, "consumer_c: %s: %s\n", cadre_code_name(events[i]->error), events[i]->error_message);
        return 1;
      }
      fwrite(events[i]->text, 1, events[i]->text_size, stdout);
    }
  }
  printf("\n");
  return 0;
}

// The text of a file, freed by the caller; NULL where it cannot be read.
static char* read_file(const char* path) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) return NULL;
  const size_t most = 65536;
  char* text = malloc(most + 1);
  if (text != NULL) {
    text[fread(text, 1, most, file)] = '\0';
    if (ferror(file)) {
      free(text);
      text = NULL;
    }
  }
  fclose(file);
  return text;
}

static int explain(const char* spec_json) {
  char* json = NULL;
  const cadre_code code = cadre_select_json(spec_json, NULL, "auto", &json);
  if (code != CADRE_OK) {
    cadre_string_free(json);  // with CADRE_NO_BACKEND it holds every reason
    return fail(code);
  }
  // A real program has a JSON parser; the name is all that is wanted here.
  static const char key[] = "\"chosen\":";
  const char* at = strstr(json, key);
  const char* name = at == NULL ? NULL : strchr(at + sizeof key - 1, '"');
  if (name != NULL) printf("backend: %.*s\n", (int)strcspn(name + 1, "\""), name + 1);
  cadre_string_free(json);
  return name == NULL;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: consumer_c MODEL_DIR ADAPTER_DIR LAYER.json\n");
    return 2;
  }
  const cadre_engine_options options = {.struct_size = sizeof options, .model_dir = argv[1]};
  cadre_engine* engine = NULL;
  const cadre_code code = cadre_engine_open(&options, &engine);
  if (code != CADRE_OK) return fail(code);
  const int status = ask(engine, argv[2]);
  cadre_engine_close(engine);
  if (status != 0) return status;

  char* spec_json = read_file(argv[3]);
  if (spec_json == NULL) {
    fprintf(stderr, "consumer_c: cannot read %s\n", argv[3]);
    return 1;
  }
  const int chosen = explain(spec_json);
  free(spec_json);
  return chosen;
}
