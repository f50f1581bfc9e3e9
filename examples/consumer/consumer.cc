// Asks a model with an adapter a question, then asks the gate which backend would run a layer.
//
//   consumer MODEL_DIR ADAPTER_DIR LAYER.json
#include <cadre/engine.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

namespace {

int fail(const cadre::Status& status) {
  std::cerr << "consumer: " << cadre::code_info(status.code()).name << ": " << status.message() << "\n";
  return 1;
}

cadre::Status ask(const std::string& model_dir, const std::string& adapter_dir) {
  cadre::EngineOptions options;
  options.model_dir = model_dir;
  options.adapters = {{.name = "elements", .dir = adapter_dir, .options = ""}};
  auto opened = cadre::Engine::open(options);
  if (!opened) return opened.status();
  cadre::Engine& engine = **opened;

  cadre::Request request;
  request.chat.push_back({.role = "user", .content = "Element: gold"});
  request.adapter = "elements";
  request.sampling.temperature = 0;  // greedy
  request.sampling.max_tokens = 32;
  const auto id = engine.submit(request);
  if (!id) return id.status();

  // Each step runs one batch and brings what is new, for every request that took part.
  while (!engine.idle()) {
    const auto events = engine.step();
    if (!events) return events.status();
    for (const cadre::Event& event : *events) {
      if (event.finish == cadre::FinishReason::kError) return event.error;
      std::cout << event.text;
    }
  }
  std::cout << "\n";
  return {};
}

cadre::Status explain(const std::string& path) {
  std::ifstream file(path);
  const std::string json(std::istreambuf_iterator<char>(file), {});
  if (!file) return {cadre::Code::kNotFound, "cannot read " + path};
  const auto spec = cadre::layer_spec_from_json(json);
  if (!spec) return spec.status();

  cadre::Deployment deployment;
  deployment.device = cadre::this_device();
  const auto selection = cadre::select(*spec, deployment, cadre::Policy{});  // the default policy is auto
  if (!selection) return selection.status();
  std::cout << "backend: " << selection->chosen << "\n";
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: consumer MODEL_DIR ADAPTER_DIR LAYER.json\n";
    return 2;
  }
  if (const cadre::Status status = ask(argv[1], argv[2]); !status.ok()) return fail(status);
  if (const cadre::Status status = explain(argv[3]); !status.ok()) return fail(status);
  return 0;
}
