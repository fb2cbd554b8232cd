// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/suggestions.h"

#include <algorithm>

namespace lockstep {
namespace {

// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
size_t slips(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string* nearest = nullptr;
  size_t fewest = std::max<size_t>(1, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const size_t count = slips(word, candidate);
    if (count >= fewest) continue;
    fewest = count;
    nearest = &candidate;
  }
  return nearest == nullptr ? "" : " (did you mean '" + *nearest + "'?)";
}

std::string one_of(const std::vector<std::string>& names) {
  std::string all;
  for (size_t i = 0; i < names.size(); ++i) all += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return all;
}

}  // namespace lockstep
