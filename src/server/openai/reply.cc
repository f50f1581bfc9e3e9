#include "server/openai/reply.h"

#include <cadre/sampling.h>

namespace cadre::server {

std::string new_reply_id(std::string_view prefix) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string id(prefix);
  for (int half = 0; half < 2; ++half) {
    std::uint64_t bits = fresh_seed();
    for (int digit = 0; digit < 16; ++digit, bits >>= 4) id += kHex[bits & 15];
  }
  return id;
}

std::string server_sent_event(std::string_view json) {
  std::string out;
  out.reserve(json.size() + 8);
  out += "data: ";
  out += json;
  out += "\n\n";
  return out;
}

Reply::Reply(Setup setup)
    : setup_(std::move(setup)),
      finished_(setup_.prompts * setup_.n),
      open_(finished_.size()),
      prompt_tokens_(setup_.prompt_tokens) {}

std::string Reply::feed(std::size_t choice, const Event& event) {
  if (done() || choice >= finished_.size() || finished_[choice]) return {};
  if (event.finish == FinishReason::kError) return fail(api_error(event.error));
  if (event.token && setup_.count_tokens) ++completion_tokens_;
  // A prompt counts once, and so does what was cached of it: what its first choice found.
  if (choice % setup_.n == 0) cached_tokens_ += event.cached_tokens;
  const std::vector<Json> pieces = take(choice, event);
  if (event.finish != FinishReason::kNone) {
    finished_[choice] = true;
    --open_;
  }
  std::string out;
  for (const Json& piece : pieces) {
    std::vector<Json::Member> chunk = head(setup_.chunk_object);
    chunk.emplace_back("choices", Json::array({piece}));
    if (setup_.continuous_usage) {
      chunk.emplace_back("usage", usage());
    } else if (setup_.include_usage) {
      chunk.emplace_back("usage", nullptr);
    }
    out += server_sent_event(Json::object(std::move(chunk)).dump());
  }
  return out;
}

std::string Reply::finish() {
  if (error_ || !setup_.stream) return {};
  std::string out;
  if (setup_.include_usage) {
    std::vector<Json::Member> chunk = head(setup_.chunk_object);
    chunk.emplace_back("choices", Json::array(std::vector<Json>()));
    chunk.emplace_back("usage", usage());
    out = server_sent_event(Json::object(std::move(chunk)).dump());
  }
  out += kStreamEnd;
  return out;
}

std::string Reply::fail(ApiError error) {
  if (error_) return {};
  error_ = std::move(error);
  if (!setup_.stream) return {};
  return server_sent_event(error_->body()) + std::string(kStreamEnd);
}

std::string Reply::body() const {
  std::vector<Json::Member> out = head(setup_.object);
  std::vector<Json> choices;
  for (std::size_t i = 0; i < finished_.size(); ++i) choices.push_back(whole_choice(i));
  out.emplace_back("choices", Json::array(std::move(choices)));
  out.emplace_back("usage", usage());
  for (Json::Member& member : further_members()) out.push_back(std::move(member));
  return Json::object(std::move(out)).dump();
}

std::vector<Json::Member> Reply::head(std::string_view object) const {
  std::vector<Json::Member> out = {
      {"id", setup_.info.id}, {"object", object}, {"created", setup_.info.created}, {"model", setup_.info.model}};
  if (!setup_.info.fingerprint.empty()) out.emplace_back("system_fingerprint", setup_.info.fingerprint);
  return out;
}

Json Reply::usage() const {
  return Json::object({{"prompt_tokens", prompt_tokens_},
                       {"completion_tokens", completion_tokens_},
                       {"total_tokens", prompt_tokens_ + completion_tokens_},
                       {"prompt_tokens_details", Json::object({{"cached_tokens", cached_tokens_}})}});
}

}  // namespace cadre::server
