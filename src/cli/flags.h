// The flags of each command, as CLI11 takes a line apart. Values stay text here; values.h reads them. CLI11 is heavy,
// so only flags.cc includes it.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "cli/values.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cadre::cli {

class Flags {
 public:
  explicit Flags(CLI::App* app) : app_(app) {}
  const CLI::App* app() const { return app_; }

  // Declaring. `group` heads those that follow in the help text; an empty one leaves them out of it.
  void group(const std::string& name) { group_ = name; }
  void value(const std::string& name, const char* type, const std::string& help);
  void values(const std::string& name, const char* type, const std::string& help);  // may be given several times
  void words(const std::string& name, const char* type, const std::string& help);   // and takes several at once
  void toggle(const std::string& name, const std::string& help);
  void pair(const std::string& name, const std::string& help);  // "--x" and "--no-x"; read with choice()
  // A value that may also stand alone: "--model" and "model", for `cadre serve MODEL`.
  void value_or_word(const std::string& name, const std::string& word, const char* type, const std::string& help);

  enum class Kind : std::uint8_t { kValue, kValues, kToggle };
  std::optional<Kind> kind(const std::string& name) const;  // absent: no such flag is declared
  std::vector<std::string> names() const;

  // What a flag is where the line does not have it, and where that comes from ("CADRE_SERVE_PORT", "serve.yaml:3"). A
  // toggle is "true" or "false". The first supply of a flag counts.
  void supply(const std::string& name, std::vector<std::string> values, const std::string& origin);
  // An error about a flag that was supplied says from where.
  Status with_origin(Status status) const;

  // Reading, after the line was parsed.
  bool given(const std::string& name) const;
  std::optional<std::string> text(const std::string& name) const;
  Result<bool> choice(const std::string& name, bool otherwise) const;  // of a flag declared with `pair`
  const std::vector<std::string>& all(const std::string& name) const;  // of a flag that may be given several times
  Result<std::string> required(const std::string& name) const;
  // The one flag of `names` that is given.
  Result<std::string> exactly_one(const std::vector<std::string>& names) const;
  // A number into an optional field, which stays empty where the flag is not given.
  template <class T>
  Status number(const std::string& name, std::optional<T>* field,
                std::int64_t min = std::numeric_limits<std::int32_t>::min(),
                std::int64_t max = std::numeric_limits<std::int32_t>::max()) const {
    const std::optional<std::string> typed = text(name);
    if (!typed) return {};
    if constexpr (std::is_floating_point_v<T>) {
      CADRE_ASSIGN(*field, parse_real(name, *typed));
    } else {
      CADRE_ASSIGN(const std::int64_t number, parse_int(name, *typed, min, max));
      *field = static_cast<T>(number);
    }
    return {};
  }
  // A flag given twice although only one value counts is an error: which one was meant? So is --json=false.
  Status check() const;

 private:
  CLI::App* app_;
  std::string group_ = "Options";
  std::map<std::string, CLI::Option*> options_;
  std::set<std::string> repeatable_, toggles_;
  struct Supplied {
    std::vector<std::string> values;
    std::string origin;
  };
  std::map<std::string, Supplied> supplied_;
};

class LineParser {
 public:
  LineParser(const std::string& description, const std::string& footer);
  ~LineParser();
  LineParser(const LineParser&) = delete;
  LineParser& operator=(const LineParser&) = delete;

  // `parent` is a command that only holds others, or empty. Adding a parent again changes nothing. The reference holds
  // as long as this does.
  void add_parent(const std::string& name, const std::string& description);
  Flags& add_command(const std::string& parent, const std::string& name, const std::string& description);

  struct Parsed {
    const Flags* command = nullptr;
    std::string text;  // of --help or --version, where `command` is null
  };
  Result<Parsed> parse(int argc, const char* const* argv);

 private:
  std::unique_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Flags>> commands_;
};

}  // namespace cadre::cli
