// Files written by pieces: a safetensors file of random elements, larger than memory if need be, and small texts.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "io/safetensors.h"

namespace cadre {

// Elements as DummyTensor makes them. `wrote`, where given, hears of every piece and may end the writing with an error;
// the file then does not appear.
Status write_random_file(const std::filesystem::path& path, std::span<const SafetensorsWriter::Entry> entries,
                         std::uint64_t seed, const std::function<Status(std::uint64_t bytes)>& wrote = {});

// Replaces the file.
Status write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace cadre
