// What a test expects of a Status or Result that failed.
#pragma once

#include <cadre/status.h>
#include <gmock/gmock.h>

#include <string>

namespace cadre {

inline const Status& status_of(const Status& status) { return status; }
template <class T>
const Status& status_of(const Result<T>& result) {
  return result.status();
}

// EXPECT_THAT(open(path), FailsWith(Code::kNotFound, "no such file")): that code, and the message has that phrase.
MATCHER_P2(FailsWith, code, phrase,
           std::string("fails with ") + code_info(code).name + " and a message that has '" + phrase + "'") {
  const Status& status = status_of(arg);
  *result_listener << code_info(status.code()).name << ": " << status.message();
  return status.code() == code && status.message().find(phrase) != std::string::npos;
}

MATCHER(Succeeds, "succeeds") {
  const Status& status = status_of(arg);
  *result_listener << code_info(status.code()).name << ": " << status.message();
  return status.ok();
}

}  // namespace cadre
