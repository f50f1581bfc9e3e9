// Models by their names on the Hugging Face hub, found in the local cache. Nothing is downloaded.
#pragma once

#include <cadre/status.h>

#include <map>
#include <string>

namespace cadre::cli {

// HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or HOME/.cache/huggingface/hub: the first that is set.
// Empty where none is.
std::string hf_cache_dir(const std::map<std::string, std::string>& variables);

// "org/name" or "org/name@revision"; nothing else is looked for in the cache.
bool is_hub_name(const std::string& text);
// "org/name" of "org/name@revision".
std::string without_revision(const std::string& hub_name);

// What is there under this path as it is; a hub's name becomes the folder of its snapshot: of the revision named
// (a branch, a tag, a commit or its beginning), otherwise of "main". Other text is returned as it is, for its reader to
// say that it is not there. kNotFound says what to run.
Result<std::string> find_model(const std::string& flag, const std::string& text, const std::string& cache_dir);

}  // namespace cadre::cli
