// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

/// The global sequence of example ids: id = order(epoch, position), a pure function, so that a number is all the state
/// there is. An order says nothing of replicas: the loader cuts the sequence, and no order can hand two of them the
/// same position. A value; copies share what it holds. Threads may use it at once.
class Order {
 public:
  /// An order of one's own, as a class: positions [begin, begin + ids.size()) of an epoch.
  class Source {
   public:
    virtual ~Source() = default;
    virtual void fill(int64_t epoch, int64_t begin, std::span<int64_t> ids) const = 0;
    /// Whether an epoch has each example exactly once.
    virtual bool exactly_once(int64_t epoch) const = 0;
    virtual std::string describe() const = 0;
  };

  /// A permutation keyed by (seed, epoch): each example once an epoch, in another order every time.
  static Order shuffled(int64_t examples, uint64_t seed);
  /// 0, 1, 2, ...
  static Order sequential(int64_t examples);
  /// Each position draws an example with a probability proportional to its weight, with replacement, keyed by (seed,
  /// epoch, position). `count` positions an epoch, 0: as many as there are examples. Throws Error unless weights are
  /// finite, none is negative and one is positive.
  static Order weighted(std::vector<double> weights, uint64_t seed, int64_t count = 0);
  /// Each example once, in runs of `run` examples of one class (0: a class as a whole); runs and examples in them are
  /// shuffled by (seed, epoch). What is left of the classes, in shorter runs, comes last.
  static Order grouped(std::vector<int64_t> classes, uint64_t seed, int64_t run = 0);
  /// The user's own: ids[position] in every epoch. Throws Error for an id that is not in [0, examples).
  static Order of(int64_t examples, std::vector<int64_t> ids);
  /// The user's own: id(epoch, position), a pure function that threads may call at once. An id that is not in
  /// [0, examples) is an Error where it is used.
  static Order of(int64_t examples, int64_t positions, std::function<int64_t(int64_t epoch, int64_t position)> id);

  Order(int64_t examples, int64_t positions, std::shared_ptr<const Source> source);

  /// How many examples there are, and how many positions an epoch has.
  int64_t examples() const { return examples_; }
  int64_t size() const { return positions_; }

  /// Requires 0 <= epoch and 0 <= position < size(). Throws Error otherwise, or for an id out of range.
  int64_t operator()(int64_t epoch, int64_t position) const;
  /// Positions [begin, begin + ids.size()).
  void fill(int64_t epoch, int64_t begin, std::span<int64_t> ids) const;

  /// Whether this epoch has each example exactly once. Known in advance, except for a function: that is called for
  /// every position.
  bool exactly_once(int64_t epoch = 0) const;
  /// "shuffled, 60000 examples"
  std::string describe() const;

 private:
  int64_t examples_;
  int64_t positions_;
  std::shared_ptr<const Source> source_;
};

}  // namespace lockstep::data
