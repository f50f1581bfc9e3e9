// scalar_demo MODEL_DIR PROMPT: answers a prompt with this backend where it admits the layers.
#include <cadre/engine.h>

#include <cstdio>

#include "out_of_tree_backend/backend.h"

namespace {

int fail(const cadre::Status& status) {
  std::fprintf(stderr, "scalar_demo: %s\n", status.message().c_str());
  return cadre::code_info(status.code()).exit_code;
}

int answer(const char* model, const char* prompt) {
  cadre::EngineOptions options;
  options.model_dir = model;
  options.backends = {&scalar::backend()};
  options.backend = {.kind = cadre::PolicyKind::kPrefer, .names = {"scalar_silu"}, .origin = "api"};
  auto opened = cadre::Engine::open(options);
  if (!opened.ok()) return fail(opened.status());
  cadre::Engine& engine = **opened;
  for (const std::string& note : engine.notes()) std::fprintf(stderr, "note: %s\n", note.c_str());

  cadre::Request request;
  request.prompt = prompt;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 16;
  const auto id = engine.submit(request);
  if (!id.ok()) return fail(id.status());
  while (!engine.idle()) {
    const auto events = engine.step();
    if (!events.ok()) return fail(events.status());
    for (const cadre::Event& event : *events) std::fputs(event.text.c_str(), stdout);
  }
  std::printf("\nbackend: %s\n", engine.backend_names().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return answer(argv[1], argv[2]);
  std::fprintf(stderr, "usage: scalar_demo MODEL_DIR PROMPT\n");
  return 2;
}
