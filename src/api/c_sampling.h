// cadre_sampling as the engine takes it.
#pragma once

#include <cadre/cadre.h>
#include <cadre/sampling.h>

namespace cadre::api {

// `given` may be NULL. Checks what only C can get wrong; the engine checks the values.
Result<SamplingRequest> read_sampling(const cadre_sampling* given);

}  // namespace cadre::api
