// The routes that say what is here: models, versions, the selection, tokens, metrics.
#pragma once

#include "server/service/context.h"

namespace cadre::server {

void list_models(Context& context, Exchange exchange);
void show_model(Context& context, Exchange exchange, const std::string& name);
void tokenize(Context& context, Exchange exchange);
void detokenize(Context& context, Exchange exchange);
void explain(Context& context, Exchange exchange);
void metrics(Context& context, Exchange exchange);

}  // namespace cadre::server
