// Sizes for people: "512.0 MiB", "1.5 GiB".
#pragma once

#include <concepts>
#include <cstdio>
#include <string>

namespace cadre {

inline std::string size_text(double bytes) {
  const double mib = bytes / (1 << 20);
  char text[32];
  std::snprintf(text, sizeof text, mib >= 1024 ? "%.1f GiB" : "%.1f MiB", mib >= 1024 ? mib / 1024 : mib);
  return text;
}
std::string size_text(std::integral auto bytes) { return size_text(static_cast<double>(bytes)); }

}  // namespace cadre
