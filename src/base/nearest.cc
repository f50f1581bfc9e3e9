#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace cadre {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_hint(std::string_view typed, std::span<const std::string> known) {
  const auto nearest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return edit_distance(typed, a) < edit_distance(typed, b);
  });
  if (nearest == known.end() || edit_distance(typed, *nearest) > std::max<std::size_t>(2, nearest->size() / 3))
    return {};
  return ", did you mean '" + *nearest + "'?";
}

}  // namespace cadre
