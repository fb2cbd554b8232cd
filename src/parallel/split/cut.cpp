// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

// Seconds that each of two processes takes for a byte that goes from one to the other: connections within a machine
// carried 7 to 11 Gbit/s.
constexpr double kCrossingByte = 1e-9;

struct Cut {
  std::vector<size_t> first;  // stage of each part
  double largest = 0;         // cost
};

// Makes the largest cost of a part as small as can be. cost(part, begin, end): of the stages from begin to end.
// least[p][s]: the smallest largest cost of the first p parts over the first s stages; from[p][s]: where part p begins.
template <class Cost>
Cut best_cut(size_t stages, size_t parts, const Cost& cost) {
  LOCKSTEP_ASSERT(parts >= 1 && parts <= stages);
  const std::vector<double> never(stages + 1, std::numeric_limits<double>::infinity());
  std::vector<std::vector<double>> least(parts + 1, never);
  std::vector<std::vector<size_t>> from(parts + 1, std::vector<size_t>(stages + 1, 0));
  least[0][0] = 0;
  for (size_t p = 1; p <= parts; ++p)
    for (size_t end = p; end <= stages; ++end)
      for (size_t begin = p - 1; begin < end; ++begin) {
        const double largest = std::max(least[p - 1][begin], cost(p - 1, begin, end));
        if (largest >= least[p][end]) continue;
        least[p][end] = largest;
        from[p][end] = begin;
      }
  Cut cut{.first = std::vector<size_t>(parts), .largest = least[parts][stages]};
  for (size_t p = parts, end = stages; p > 0; --p) end = cut.first[p - 1] = from[p][end];
  return cut;
}

// The sum of these from one place to another.
class Sums {
 public:
  explicit Sums(std::span<const double> of) : until_(of.size() + 1, 0) {
    std::partial_sum(of.begin(), of.end(), until_.begin() + 1);
  }
  double operator()(size_t begin, size_t end) const { return until_[end] - until_[begin]; }

 private:
  std::vector<double> until_;
};

}  // namespace

std::vector<size_t> cut_evenly(std::span<const double> costs, std::span<const int64_t> devices,
                               std::span<const double> borders, std::span<const double> links) {
  const Sums sum(costs);
  const auto border = [&](size_t stage) {
    return stage == 0 || stage == costs.size() || borders.empty() ? 0.0 : borders[stage];
  };
  return best_cut(costs.size(), devices.size(),
                  [&](size_t part, size_t begin, size_t end) {
                    const double mine = sum(begin, end) + border(begin) + border(end);
                    const double way = part > 0 && part <= links.size() ? links[part - 1] * border(begin) : 0;
                    return std::max(mine / static_cast<double>(devices[part]), way);
                  })
      .first;
}

std::vector<size_t> cut_for_threads(std::span<const double> costs, std::span<const double> late,
                                    std::span<const int64_t> devices) {
  const Sums sum(costs), sum_late(late);
  const auto all_devices = static_cast<double>(std::reduce(devices.begin(), devices.end()));
  const auto own = [&](size_t part, size_t begin, size_t end) {
    return (sum(begin, end) - (part > 0 ? sum_late(begin, end) : 0)) / static_cast<double>(devices[part]);
  };
  const double least =
      std::max(best_cut(costs.size(), devices.size(), own).largest, sum(0, costs.size()) / all_devices);
  const double most = least * (1 + 1e-9);  // sums of the same numbers in another order
  return best_cut(costs.size(), devices.size(),
                  [&](size_t part, size_t begin, size_t end) {
                    return own(part, begin, end) <= most ? sum(begin, end) / static_cast<double>(devices[part])
                                                         : std::numeric_limits<double>::max();
                  })
      .first;
}

std::vector<size_t> cut_evenly_at(std::span<const size_t> begins, std::span<const double> costs,
                                  std::span<const int64_t> devices, std::span<const int64_t> crossing,
                                  std::span<const double> seconds_a_byte) {
  std::vector<double> joined, borders, links;
  for (size_t b = 0; b < begins.size(); ++b) {
    const size_t end = b + 1 < begins.size() ? begins[b + 1] : costs.size();
    const auto these = costs.subspan(begins[b], end - begins[b]);
    joined.push_back(std::reduce(these.begin(), these.end()));
    if (!crossing.empty()) borders.push_back(b == 0 ? 0 : kCrossingByte * static_cast<double>(crossing[begins[b] - 1]));
  }
  for (const double seconds : seconds_a_byte) links.push_back(seconds / 2 / kCrossingByte);
  std::vector<size_t> first = cut_evenly(joined, devices, borders, links);
  for (size_t& part : first) part = begins[part];
  return first;
}

std::vector<bool> may_begin_part(const std::vector<bool>& is_trained) {
  std::vector<bool> may(is_trained.size(), false);
  bool any = false;
  for (size_t stage = 0; stage < is_trained.size(); ++stage) {
    may[stage] = stage == 0 || (any && is_trained[stage]);
    any = any || is_trained[stage];
  }
  return may;
}

std::string describe_cut(std::span<const std::string> names, std::span<const double> costs,
                         std::span<const size_t> first) {
  const double all = std::reduce(costs.begin(), costs.end());
  std::string out;
  for (size_t part = 0; part < first.size(); ++part) {
    const size_t end = part + 1 < first.size() ? first[part + 1] : costs.size();
    const auto mine = costs.subspan(first[part], end - first[part]);
    out += text(part == 0 ? "" : " | ", names[first[part]], " to ", names[end - 1], " (",
                std::lround(100 * std::reduce(mine.begin(), mine.end()) / all), " %)");
  }
  return out;
}

}  // namespace lockstep::parallel
