// SPDX-License-Identifier: Apache-2.0
#include "data/clouds/balanced_shares.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"

// Largest first, each to whoever has least so far; then exchanges between the largest share and a smaller one, the best
// first, as long as they help. Shares are put in order by the same exchanges between the halves of their list.
namespace lockstep::data {
namespace {

using Members = std::vector<int64_t>;
enum class Exchange { swaps, swaps_and_moves };

constexpr int kMostRounds = 64;  // exchanges end by themselves; this bounds their time for batches of thousands
constexpr int64_t kNobody = -1;

int64_t load_of(const Members& members, std::span<const int64_t> costs) {
  return std::transform_reduce(members.begin(), members.end(), int64_t{0}, std::plus<>(),
                               [&](int64_t i) { return costs[i]; });
}

std::vector<int64_t> loads_of(const std::vector<Members>& groups, std::span<const int64_t> costs) {
  std::vector<int64_t> loads;
  for (const Members& group : groups) loads.push_back(load_of(group, costs));
  return loads;
}

std::vector<int64_t> largest_first(std::span<const int64_t> costs) {
  std::vector<int64_t> order(costs.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](int64_t i) { return costs[i]; });
  return order;
}

void hand_over(int64_t member, Members& from, Members& to) {
  if (member == kNobody) return;
  std::erase(from, member);
  to.push_back(member);
}

/// The exchange that leaves the least between the loads of two groups; nobody for nobody where none does better.
std::pair<int64_t, int64_t> best_exchange(const Members& a, const Members& b, std::span<const int64_t> costs,
                                          Exchange kind) {
  const int64_t difference = load_of(a, costs) - load_of(b, costs);
  const auto cost = [&](int64_t i) { return i == kNobody ? 0 : costs[i]; };
  Members of_a = a, of_b = b;
  if (kind == Exchange::swaps_and_moves) {
    of_a.push_back(kNobody);
    of_b.push_back(kNobody);
  }
  std::pair<int64_t, int64_t> best{kNobody, kNobody};
  int64_t least = std::abs(difference);
  for (const int64_t i : of_a) {
    for (const int64_t j : of_b) {
      const int64_t left = std::abs(difference - 2 * (cost(i) - cost(j)));
      if (left < least) std::tie(least, best) = std::pair(left, std::pair(i, j));
    }
  }
  return best;
}

void even_out(Members& a, Members& b, std::span<const int64_t> costs, Exchange kind) {
  for (int round = 0; round < kMostRounds; ++round) {
    const auto [i, j] = best_exchange(a, b, costs, kind);
    if (i == kNobody && j == kNobody) return;
    hand_over(i, a, b);
    hand_over(j, b, a);
  }
}

/// Whether the largest share could be made smaller by exchanges with one other.
bool relieve_largest(std::vector<Members>& shares, std::span<const int64_t> costs) {
  const auto loads = loads_of(shares, costs);
  const auto order = largest_first(loads);
  const int64_t largest = order.front();
  for (auto other = order.rbegin(); other != order.rend() && *other != largest; ++other) {
    Members a = shares[largest], b = shares[*other];
    even_out(a, b, costs, Exchange::swaps_and_moves);
    if (std::max(load_of(a, costs), load_of(b, costs)) >= loads[largest]) continue;
    shares[largest] = std::move(a);
    shares[*other] = std::move(b);
    return true;
  }
  return false;
}

/// The members in an order in which halves, quarters and so on have about the same load.
Members in_even_order(Members members, std::span<const int64_t> loads) {
  if (members.size() < 2) return members;
  const size_t half = (members.size() + 1) / 2, rest = members.size() - half;
  std::ranges::stable_sort(members, std::greater<>(), [&](int64_t i) { return loads[i]; });
  Members left, right;
  for (const int64_t i : members) {
    const bool goes_left = left.size() < half && load_of(left, loads) <= load_of(right, loads);
    (goes_left || right.size() == rest ? left : right).push_back(i);
  }
  even_out(left, right, loads, Exchange::swaps);
  left = in_even_order(std::move(left), loads);
  right = in_even_order(std::move(right), loads);
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

}  // namespace

std::vector<std::vector<int64_t>> balanced_shares(std::span<const int64_t> costs, int64_t shares) {
  require(shares >= 1, "balanced_shares", "there are ", shares, " shares, expected at least 1");
  std::vector<Members> groups(shares);
  std::vector<int64_t> loads(shares, 0);
  for (const int64_t i : largest_first(costs)) {
    const auto least = std::ranges::min_element(loads) - loads.begin();
    groups[least].push_back(i);
    loads[least] += costs[i];
  }
  for (int round = 0; round < kMostRounds && relieve_largest(groups, costs); ++round) continue;

  loads = loads_of(groups, costs);
  Members order(shares);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::vector<Members> out;
  for (const int64_t share : in_even_order(std::move(order), loads)) {
    std::ranges::sort(groups[share]);
    out.push_back(std::move(groups[share]));
  }
  return out;
}

}  // namespace lockstep::data
