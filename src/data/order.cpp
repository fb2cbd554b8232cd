// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/order.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/numerics/permutation.h"
#include "lockstep/numerics/random.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kOrderStream = 0x6F72646572;  // "order": nothing else draws from these numbers

RandomKey key_of(uint64_t seed, int64_t epoch) {
  return RandomKey{seed, kOrderStream}.fold(static_cast<uint64_t>(epoch));
}

/// Whether these are the numbers 0 .. examples - 1, each once.
bool each_once(int64_t examples, std::span<const int64_t> ids) {
  if (static_cast<int64_t>(ids.size()) != examples) return false;
  std::vector<bool> seen(examples, false);
  for (const int64_t id : ids) {
    if (id < 0 || id >= examples || seen[id]) return false;
    seen[id] = true;
  }
  return true;
}

class Shuffled : public Order::Source {
 public:
  Shuffled(int64_t examples, uint64_t seed) : examples_(examples), seed_(seed) {}
  void fill(int64_t epoch, int64_t begin, std::span<int64_t> ids) const override {
    const KeyedPermutation permutation(key_of(seed_, epoch), examples_);
    for (int64_t& id : ids) id = permutation(begin++);
  }
  bool exactly_once(int64_t) const override { return true; }
  std::string describe() const override { return "shuffled"; }

 private:
  int64_t examples_;
  uint64_t seed_;
};

class Sequential : public Order::Source {
 public:
  void fill(int64_t, int64_t begin, std::span<int64_t> ids) const override { std::iota(ids.begin(), ids.end(), begin); }
  bool exactly_once(int64_t) const override { return true; }
  std::string describe() const override { return "sequential"; }
};

class Weighted : public Order::Source {
 public:
  Weighted(std::span<const double> weights, uint64_t seed) : seed_(seed) {
    double sum = 0;
    for (const double weight : weights) sums_.push_back(sum += weight);
    last_ = static_cast<int64_t>(weights.size()) - 1;
    while (weights[last_] == 0) --last_;
  }
  void fill(int64_t epoch, int64_t begin, std::span<int64_t> ids) const override {
    const RandomKey key = key_of(seed_, epoch);
    for (int64_t& id : ids) {
      const double point = uniform(key, static_cast<uint64_t>(begin++)) * sums_.back();
      const int64_t found = std::ranges::upper_bound(sums_, point) - sums_.begin();
      id = std::min(found, last_);  // rounding may lift the point to the sum itself
    }
  }
  bool exactly_once(int64_t) const override { return false; }
  std::string describe() const override { return "weighted, with replacement"; }

 private:
  uint64_t seed_;
  std::vector<double> sums_;
  int64_t last_;  // the last example with a positive weight
};

/// Runs of one class. Full runs come first, in the order of a permutation, then what is left of each class, in another:
/// so the run of a position is a division, and of the short runs there are no more than classes.
class Grouped : public Order::Source {
 public:
  Grouped(const std::vector<int64_t>& classes, uint64_t seed, int64_t run) : seed_(seed), run_(run) {
    const int64_t count = classes.empty() ? 0 : 1 + *std::ranges::max_element(classes);
    members_.resize(count);
    for (size_t id = 0; id < classes.size(); ++id) members_[classes[id]].push_back(static_cast<int64_t>(id));
    for (int64_t c = 0; c < count && run > 0; ++c)
      for (int64_t r = 0; r < static_cast<int64_t>(members_[c].size()) / run; ++r) full_runs_.push_back({c, r * run});
  }

  void fill(int64_t epoch, int64_t begin, std::span<int64_t> ids) const override {
    const RandomKey key = key_of(seed_, epoch);
    const KeyedPermutation full(key.fold(0), static_cast<int64_t>(full_runs_.size()));
    const std::vector<Run> rest = short_runs(key);
    size_t at = 0;  // the run of `rest` that the position is in
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t position = begin + static_cast<int64_t>(i), run = run_ > 0 ? position / run_ : 0;
      if (run < full.size()) {
        const Run& found = full_runs_[full(run)];
        ids[i] = member(key, found.of_class, found.first + position % run_);
        continue;
      }
      while (at + 1 < rest.size() && position >= rest[at + 1].position) ++at;
      ids[i] = member(key, rest[at].of_class, rest[at].first + position - rest[at].position);
    }
  }
  bool exactly_once(int64_t) const override { return true; }
  std::string describe() const override {
    return run_ > 0 ? text("in runs of ", run_, " of a class") : "class after class";
  }

 private:
  struct Run {
    int64_t of_class;
    int64_t first;         // of the class's members, in their shuffled order
    int64_t position = 0;  // of the epoch; only in short runs
  };

  std::vector<Run> short_runs(RandomKey key) const {
    const KeyedPermutation classes(key.fold(1), static_cast<int64_t>(members_.size()));
    std::vector<Run> runs;
    int64_t position = static_cast<int64_t>(full_runs_.size()) * run_;
    for (int64_t i = 0; i < classes.size(); ++i) {
      const int64_t c = classes(i), size = static_cast<int64_t>(members_[c].size());
      const int64_t left = run_ > 0 ? size % run_ : size;
      if (left == 0) continue;
      runs.push_back({c, size - left, position});
      position += left;
    }
    return runs;
  }

  int64_t member(RandomKey key, int64_t c, int64_t index) const {
    const auto size = static_cast<int64_t>(members_[c].size());
    return members_[c][KeyedPermutation(key.fold(2).fold(static_cast<uint64_t>(c)), size)(index)];
  }

  uint64_t seed_;
  int64_t run_;
  std::vector<std::vector<int64_t>> members_;
  std::vector<Run> full_runs_;
};

class Listed : public Order::Source {
 public:
  Listed(int64_t examples, std::vector<int64_t> ids) : once_(each_once(examples, ids)), ids_(std::move(ids)) {}
  void fill(int64_t, int64_t begin, std::span<int64_t> ids) const override {
    std::copy_n(ids_.begin() + begin, ids.size(), ids.begin());
  }
  bool exactly_once(int64_t) const override { return once_; }
  std::string describe() const override { return "a list"; }

 private:
  bool once_;
  std::vector<int64_t> ids_;
};

class Computed : public Order::Source {
 public:
  using Function = std::function<int64_t(int64_t, int64_t)>;
  Computed(int64_t examples, int64_t positions, Function id)
      : examples_(examples), positions_(positions), id_(std::move(id)) {}
  void fill(int64_t epoch, int64_t begin, std::span<int64_t> ids) const override {
    for (int64_t& id : ids) id = id_(epoch, begin++);
  }
  bool exactly_once(int64_t epoch) const override {
    std::vector<int64_t> ids(positions_);
    fill(epoch, 0, ids);
    return each_once(examples_, ids);
  }
  std::string describe() const override { return "a function"; }

 private:
  int64_t examples_;
  int64_t positions_;
  Function id_;
};

}  // namespace

Order::Order(int64_t examples, int64_t positions, std::shared_ptr<const Source> source)
    : examples_(examples), positions_(positions), source_(std::move(source)) {
  require(source_ != nullptr, "Order", "the source is null");
  require(examples > 0 && positions >= 0, "Order", "got ", examples, " examples and ", positions,
          " positions, expected at least 1 and at least 0");
}

Order Order::shuffled(int64_t examples, uint64_t seed) {
  return {examples, examples, std::make_shared<Shuffled>(std::max<int64_t>(examples, 0), seed)};
}

Order Order::sequential(int64_t examples) {
  return {examples, examples, std::make_shared<Sequential>()};
}

Order Order::weighted(std::vector<double> weights, uint64_t seed, int64_t count) {
  for (size_t i = 0; i < weights.size(); ++i)
    require(std::isfinite(weights[i]) && weights[i] >= 0, "Order::weighted", "weight ", i, " is ", weights[i],
            ", expected a finite number, 0 or more");
  require(std::ranges::any_of(weights, [](double w) { return w > 0; }), "Order::weighted", "none of ", weights.size(),
          " weights is positive, expected one");
  require(std::isfinite(std::accumulate(weights.begin(), weights.end(), 0.0)), "Order::weighted",
          "the sum of the weights is not finite");
  const auto examples = static_cast<int64_t>(weights.size());
  return {examples, count == 0 ? examples : count, std::make_shared<Weighted>(weights, seed)};
}

Order Order::grouped(std::vector<int64_t> classes, uint64_t seed, int64_t run) {
  require(run >= 0, "Order::grouped", "run is ", run, ", expected 0 or more");
  const auto examples = static_cast<int64_t>(classes.size());
  for (size_t i = 0; i < classes.size(); ++i)
    require(0 <= classes[i] && classes[i] <= (int64_t{1} << 24), "Order::grouped", "class ", i, " is ", classes[i],
            ", expected a number in [0, 2^24]");
  return {examples, examples, std::make_shared<Grouped>(classes, seed, run)};
}

Order Order::of(int64_t examples, std::vector<int64_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i)
    require(0 <= ids[i] && ids[i] < examples, "Order::of", "id ", i, " is ", ids[i], ", expected one in [0, ", examples,
            ")");
  const auto positions = static_cast<int64_t>(ids.size());
  return {examples, positions, std::make_shared<Listed>(examples, std::move(ids))};
}

Order Order::of(int64_t examples, int64_t positions, std::function<int64_t(int64_t, int64_t)> id) {
  require(id != nullptr, "Order::of", "the function is empty");
  return {examples, positions, std::make_shared<Computed>(examples, positions, std::move(id))};
}

int64_t Order::operator()(int64_t epoch, int64_t position) const {
  int64_t id = 0;
  fill(epoch, position, {&id, 1});
  return id;
}

void Order::fill(int64_t epoch, int64_t begin, std::span<int64_t> ids) const {
  require(epoch >= 0, "Order", "epoch is ", epoch, ", expected 0 or more");
  require(begin >= 0 && static_cast<int64_t>(ids.size()) <= positions_ - begin, "Order", "got positions ", begin,
          " to ", begin + static_cast<int64_t>(ids.size()), ", expected a part of [0, ", positions_, ")");
  source_->fill(epoch, begin, ids);
  for (size_t i = 0; i < ids.size(); ++i)
    require(0 <= ids[i] && ids[i] < examples_, "Order", "position ", begin + static_cast<int64_t>(i), " of epoch ",
            epoch, " has the id ", ids[i], ", expected one in [0, ", examples_, ")");
}

bool Order::exactly_once(int64_t epoch) const {
  return source_->exactly_once(epoch);
}

std::string Order::describe() const {
  std::string description = text(source_->describe(), ", ", examples_, " examples");
  if (positions_ != examples_) description += text(", ", positions_, " an epoch");
  return description;
}

}  // namespace lockstep::data
