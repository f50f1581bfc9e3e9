#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "base/nearest.h"

namespace cadre::cli {
namespace {

// Breaks descriptions between words at 100 columns; CLI11's own formatter leaves that to the terminal.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return line("  " + make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return line("  " + command->get_name(), command->get_description());
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_name().empty() ? "" : " " + option->get_type_name();
  }
  std::string make_help(const CLI::App* command, std::string name, CLI::AppFormatMode mode) const override {
    return CLI::detail::find_and_replace(Formatter::make_help(command, std::move(name), mode), "\n\n\n", "\n\n");
  }
  std::string make_description(const CLI::App* command) const override { return command->get_description() + "\n\n"; }

 private:
  static std::string line(std::string text, const std::string& description) {
    constexpr std::size_t kColumn = 31, kWidth = 100;
    if (text.size() + 2 > kColumn) text += "\n" + std::string(kColumn, ' ');
    std::size_t at = kColumn;
    if (text.size() < kColumn) text.append(kColumn - text.size(), ' ');
    std::istringstream words(description);
    std::string word;
    for (bool first = true; words >> word; first = false) {
      if (!first && at + 1 + word.size() > kWidth) {
        text += "\n" + std::string(kColumn, ' ');
        at = kColumn;
      } else if (!first) {
        text += ' ';
        ++at;
      }
      text += word;
      at += word.size();
    }
    return text + "\n";
  }
};

std::vector<std::string> flag_names(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app->get_options()) {
    if (option->get_group().empty()) continue;  // known, and not what anybody should be pointed to
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

const CLI::App* innermost(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string full_name(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name() : full_name(app->get_parent()) + " " + app->get_name();
}

// What CLI11 did not take: an unknown flag, an unknown command, or a word too many.
Status unexpected(const CLI::App* app, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const std::string see = "; see " + full_name(app) + " --help";
  if (word.starts_with('-') && word.size() > 1) {
    return error(Code::kInvalidArgument, "unknown flag '", name, "'", nearest_hint(name, flag_names(app)), see);
  }
  const std::vector<std::string> commands = command_names(app);
  if (!commands.empty()) {
    return error(Code::kInvalidArgument, "unknown command '", word, "'", nearest_hint(word, commands), see);
  }
  return error(Code::kInvalidArgument, "unexpected '", word, "', want flags only; text with spaces needs quotes", see);
}

Status missing_command(const CLI::App* app) {
  std::string names;
  for (const std::string& name : command_names(app)) names += (names.empty() ? "" : ", ") + name;
  return error(Code::kInvalidArgument, "want a command: ", names, "; see ", full_name(app), " --help");
}

}  // namespace

void Flags::value(const std::string& name, const char* type, const std::string& help) {
  CLI::Option* option = app_->add_option(name, CLI::callback_t(), help);
  option->type_name(type)->take_all()->group(group_);
  options_[name] = option;
}

void Flags::values(const std::string& name, const char* type, const std::string& help) {
  value(name, type, help + "; may be given several times");
  repeatable_.insert(name);
}

void Flags::words(const std::string& name, const char* type, const std::string& help) {
  value(name, type, help + "; several may follow one another");
  options_[name]->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args();
  repeatable_.insert(name);
}

void Flags::value_or_word(const std::string& name, const std::string& word, const char* type, const std::string& help) {
  value(word + "," + name, type, help);
  options_[name] = options_.extract(word + "," + name).mapped();
}

void Flags::toggle(const std::string& name, const std::string& help) {
  options_[name] = app_->add_flag(name, help)->take_all()->group(group_);
  toggles_.insert(name);
}

void Flags::pair(const std::string& name, const std::string& help) {
  toggle(name, help);
  toggle("--no-" + name.substr(2), "the opposite");
}

std::optional<Flags::Kind> Flags::kind(const std::string& name) const {
  if (!options_.contains(name)) return std::nullopt;
  return toggles_.contains(name) ? Kind::kToggle : repeatable_.contains(name) ? Kind::kValues : Kind::kValue;
}

std::vector<std::string> Flags::names() const {
  std::vector<std::string> names;
  for (const auto& [name, option] : options_) names.push_back(name);
  return names;
}

void Flags::supply(const std::string& name, std::vector<std::string> values, const std::string& origin) {
  const std::string opposite = name.starts_with("--no-") ? "--" + name.substr(5) : "--no-" + name.substr(2);
  if (toggles_.contains(name) && toggles_.contains(opposite)) {
    if (options_.at(name)->count() + options_.at(opposite)->count() > 0) return;
    supplied_.try_emplace(opposite, Supplied{{values.at(0) == "true" ? "false" : "true"}, origin});
  }
  supplied_.try_emplace(name, Supplied{std::move(values), origin});
}

Status Flags::with_origin(Status status) const {
  const std::string_view message = status.message();
  const std::string name(message.substr(0, message.find_first_not_of("-abcdefghijklmnopqrstuvwxyz")));
  const auto at = supplied_.find(name);
  if (at == supplied_.end() || options_.at(name)->count() > 0) return status;
  return std::move(status).with_context(at->second.origin);
}

bool Flags::given(const std::string& name) const {
  if (options_.at(name)->count() > 0) return true;
  const auto supplied = supplied_.find(name);
  return supplied != supplied_.end() && (!toggles_.contains(name) || supplied->second.values.front() == "true");
}

Result<bool> Flags::choice(const std::string& name, bool otherwise) const {
  const std::string opposite = "--no-" + name.substr(2);
  const bool yes = given(name), no = given(opposite);
  if (yes && no) return error(Code::kInvalidArgument, name, " and ", opposite, " are both given, want one");
  return yes || (!no && otherwise);
}

std::optional<std::string> Flags::text(const std::string& name) const {
  if (!given(name)) return std::nullopt;
  return all(name).back();
}

const std::vector<std::string>& Flags::all(const std::string& name) const {
  const CLI::Option* option = options_.at(name);
  const auto supplied = supplied_.find(name);
  return option->count() == 0 && supplied != supplied_.end() ? supplied->second.values : option->results();
}

Result<std::string> Flags::required(const std::string& name) const {
  if (std::optional<std::string> value = text(name); value && !value->empty()) return *std::move(value);
  return error(Code::kInvalidArgument, name, " ", options_.at(name)->get_type_name(), " is missing; see ",
               full_name(app_), " --help");
}

Result<std::string> Flags::exactly_one(const std::vector<std::string>& names) const {
  std::string typed, wanted;
  int count = 0;
  for (const std::string& name : names) {
    wanted += (wanted.empty() ? "" : ", ") + name;
    if (!given(name)) continue;
    typed += (typed.empty() ? "" : " and ") + name;
    ++count;
  }
  if (count == 1) return typed;
  return error(Code::kInvalidArgument, "want one of ", wanted, "; got ", count == 0 ? "none" : typed, "; see ",
               full_name(app_), " --help");
}

Status Flags::check() const {
  for (const auto& [name, option] : options_) {
    if (toggles_.contains(name)) {
      for (const std::string& value : option->results()) {
        if (value != "true") return error(Code::kInvalidArgument, name, " takes no value, got '", value, "'");
      }
      continue;  // twice says no more than once
    }
    if (option->count() > 1 && !repeatable_.contains(name)) {
      return error(Code::kInvalidArgument, name, " is given ", option->count(), " times, want it once");
    }
  }
  return {};
}

LineParser::LineParser(const std::string& description, const std::string& footer)
    : app_(std::make_unique<CLI::App>(description, "cadre")) {
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->get_formatter()->label("SUBCOMMAND", "COMMAND");
  app_->set_help_flag("--help,-h", "this text");
  app_->set_version_flag("--version", "cadre " CADRE_VERSION, "the version");
  app_->footer(footer);
}

LineParser::~LineParser() = default;

void LineParser::add_parent(const std::string& name, const std::string& description) {
  const std::vector<std::string> known = command_names(app_.get());
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  app_->add_subcommand(name, description)->footer("")->group("Commands");
}

Flags& LineParser::add_command(const std::string& parent, const std::string& name, const std::string& description) {
  CLI::App* command = (parent.empty() ? app_.get() : app_->get_subcommand(parent))->add_subcommand(name, description);
  command->footer("")->group("Commands");
  return *commands_.emplace_back(std::make_unique<Flags>(command));
}

Result<LineParser::Parsed> LineParser::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Parsed{nullptr, app_->help()};
  } catch (const CLI::CallForVersion&) {
    return Parsed{nullptr, "cadre " CADRE_VERSION "\n"};
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> words = app_->remaining(true);
    // An unknown flag says more than the words after it, which may have been its value.
    const auto flag = std::find_if(words.begin(), words.end(), [](const auto& w) { return w.starts_with('-'); });
    return unexpected(innermost(app_.get()), flag != words.end() ? *flag : words.empty() ? "" : words.front());
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string text = e.what();  // "--prompt: 1 required TEXT missing"
    return error(Code::kInvalidArgument, text.substr(0, text.find(':')), " needs a value; see ",
                 full_name(innermost(app_.get())), " --help");
  } catch (const CLI::ParseError& e) {
    return error(Code::kInvalidArgument, e.what(), "; see ", full_name(innermost(app_.get())), " --help");
  }
  for (const std::unique_ptr<Flags>& flags : commands_) {
    if (!flags->app()->parsed()) continue;
    CADRE_TRY(flags->check());
    return Parsed{flags.get(), ""};
  }
  return missing_command(innermost(app_.get()));
}

}  // namespace cadre::cli
