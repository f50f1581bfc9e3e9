// What `cadre serve` is told, checked, with the engine's part apart.
#pragma once

#include <cadre/engine.h>

#include <string>
#include <vector>

#include "server/http/http_server.h"

namespace cadre::server {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> served_model_names;  // names of the base model; the first is shown. Empty: what --model was
  std::string adapter_dir;                      // root of adapters that may be loaded at run time; empty: none
  std::vector<std::string> api_keys;
  std::string admin_key;            // empty: nothing can be loaded, replaced or unloaded at run time
  std::string keys_file;            // tenants, see access/
  bool share_prefix_cache = false;  // between tenants
  int max_num_seqs = 8;             // EngineOptions::max_num_seqs
  int max_queued_requests = 256;    // waiting for their turn; more are answered with 429
  double request_timeout_s = 0;     // of one request, from its arrival; 0: none
  double drain_timeout_s = 30;      // for running replies after SIGTERM
  std::int64_t max_adapter_bytes = std::int64_t{4} << 30;  // of one adapter loaded at run time
  int max_adapters = 1024;                                 // registered at once
  std::string default_chat_template_kwargs;                // a JSON object; a request's own come before it
  bool log_requests = true;
  std::string log_format = "text", log_level = "info";
  HttpLimits http;
};

}  // namespace cadre::server
