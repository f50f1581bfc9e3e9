// Errors and the replies of routes that generate nothing.
#include "server/openai/bodies.h"

#include <gtest/gtest.h>

#include "server/openai/api_error.h"
#include "server/openai/compact.h"

namespace cadre::server {
namespace {

TEST(ApiError, TypeFollowsStatus) {
  const std::vector<std::pair<int, std::string>> types = {
      {400, "invalid_request_error"}, {401, "authentication_error"},  {403, "permission_error"},
      {404, "not_found_error"},       {405, "invalid_request_error"}, {409, "invalid_request_error"},
      {413, "invalid_request_error"}, {429, "rate_limit_error"},      {499, "invalid_request_error"},
      {500, "server_error"},          {503, "server_error"},          {507, "server_error"}};
  for (const auto& [status, type] : types) EXPECT_EQ(api_error(status, "x").type, type) << status;
}

TEST(ApiError, FromStatus) {
  const ApiError error = api_error(Status(Code::kLimitExceeded, "the prompt has 9 tokens, want at most 8"), "prompt");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(compact(error.body()), R"({"error":{"message":"the prompt has 9 tokens, want at most 8",)"
                                   R"("type":"invalid_request_error","param":"prompt","code":"limit_exceeded"}})");
  EXPECT_EQ(api_error(Status(Code::kNotFound, "x")).status, 404);
  EXPECT_EQ(api_error(Status(Code::kInternal, "x")).status, 500);
}

TEST(ApiError, UnknownModel) {
  const ApiError error = model_not_found("gpt-\"4\"");
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(compact(error.body()),
            R"({"error":{"message":"the model 'gpt-\"4\"' does not exist; /v1/models lists those that do",)"
            R"("type":"not_found_error","param":"model","code":"model_not_found"}})");
}

TEST(Bodies, Models) {
  const ModelCard base{.id = "base", .created = 7, .root = "base", .max_model_len = 128};
  const ModelCard adapter{
      .id = "a", .created = 8, .root = "a", .parent = "base", .max_model_len = 128, .digest = "abc", .version = 3};
  const std::string base_json = R"({"id":"base","object":"model","created":7,"owned_by":"cadre","root":"base",)"
                                R"("parent":null,"max_model_len":128})";
  EXPECT_EQ(compact(model_body(base)), base_json);
  EXPECT_EQ(compact(models_body({base, adapter})),
            R"({"object":"list","data":[)" + base_json +
                R"(,{"id":"a","object":"model","created":8,"owned_by":"cadre","root":"a","parent":"base",)"
                R"("max_model_len":128,"digest":"abc","version":3}]})");
  EXPECT_EQ(compact(models_body({})), R"({"object":"list","data":[]})");
}

TEST(Bodies, Tokens) {
  EXPECT_EQ(compact(tokenize_body({1, 2}, 64, std::nullopt)),
            R"({"count":2,"max_model_len":64,"tokens":[1,2],"token_strs":null})");
  EXPECT_EQ(compact(tokenize_body({1}, 64, std::vector<std::string>{"\xc3"})),
            R"({"count":1,"max_model_len":64,"tokens":[1],"token_strs":["�"]})");
  EXPECT_EQ(compact(detokenize_body("a\"b")), R"({"prompt":"a\"b"})");
  EXPECT_EQ(compact(version_body("0.1.0")), R"({"version":"0.1.0"})");
}

}  // namespace
}  // namespace cadre::server
