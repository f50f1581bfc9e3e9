// The values of flags: text as typed to what it means. Every error names the flag, what it got and what it wants.
#pragma once

#include <cadre/engine.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cadre::cli {

Result<std::int64_t> parse_int(std::string_view flag, std::string_view text, std::int64_t min, std::int64_t max);
Result<std::uint64_t> parse_seed(std::string_view flag, std::string_view text);
Result<double> parse_real(std::string_view flag, std::string_view text);  // finite

// "1,2,3", with or without spaces after the commas; at least one.
Result<std::vector<std::int32_t>> parse_ids(std::string_view flag, std::string_view text);

// "4096", "512M", "1.5GiB": bytes, at least 1; K, M, G and T are powers of 1024.
Result<std::int64_t> parse_bytes(std::string_view flag, std::string_view text);

// A path that is there and is no folder is an error; one that is not there is for its reader to say.
Status want_folder(std::string_view flag, const std::string& path);
// Whether a file of this name can be written, as far as its folder goes: before the work, not after it.
Status check_out_file(std::string_view flag, const std::string& path);
// The last part of a folder's path: "elements" of "adapters/elements/".
std::string folder_name(const std::string& path);

// "DIR[,option=value]...": the folder ends at the first comma that an option follows, since folders may hold commas.
Result<AdapterSource> parse_adapter_dir(std::string_view flag, std::string_view text);
// "base" and "all" are not names: --use means something else by them.
Status check_adapter_name(std::string_view flag, std::string_view name);
// "NAME=DIR[,option=value]...".
Result<AdapterSource> parse_adapter(std::string_view flag, std::string_view text);

// "gate,up,down", "experts" for all three, and words for what is no expert's: bits of Projection.
Result<std::uint8_t> parse_targets(std::string_view flag, std::string_view text);

// "ID=BIAS", added to the map.
Status parse_logit_bias(std::string_view flag, std::string_view text, std::map<std::int32_t, float>* bias);

// Which adapters `--use` means: "" stands for the base model. With no --use: the base where no adapter is given, the
// adapter where one is, an error where there are several.
Result<std::vector<std::string>> parse_use(const std::optional<std::string>& use,
                                           const std::vector<AdapterSource>& adapters);

// "base, spanish, jargon", for messages.
std::string adapter_names(const std::vector<AdapterSource>& adapters);

}  // namespace cadre::cli
