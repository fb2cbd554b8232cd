// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/loader.h"

namespace lockstep::data {

/// What a ledger found: how often the examples of one epoch were used.
struct LedgerReport {
  int64_t examples = 0;
  int64_t uses = 0;
  int64_t missed = 0;    ///< examples that were not used
  int64_t repeated = 0;  ///< examples that were used more than once
  /// The lowest ids of those, ten at most.
  std::vector<int64_t> first_missed{};
  std::vector<int64_t> first_repeated{};

  bool exactly_once() const { return missed == 0 && repeated == 0; }
  /// "60000 of 60000 examples were used, each once", or which were missed and which were repeated.
  std::string to_string() const;
};

/// Proves that each example of an epoch was used exactly once: it counts the uses of each. Ledgers of replicas,
/// processes and of the parts of an interrupted epoch add up, in any order. Threads may add to one ledger at once.
class Ledger {
 public:
  explicit Ledger(int64_t examples);

  int64_t examples() const { return static_cast<int64_t>(uses_.size()); }

  /// Counts one use of each id; -1 (a row that doesn't count) is passed over. Throws Error for another id out of range,
  /// or an example used for the 256th time.
  void add(std::span<const int64_t> ids);
  void add(const Batch& batch);

  /// The counts as whole numbers in an int64 tensor [ceil(examples / 6)] on the CPU, six to a number, each number below
  /// 2^48: the states of several ledgers may be added as int64 or as float64 (an all-reduce, Replica::sum), exactly,
  /// while no example has more than 255 uses in all.
  at::Tensor state() const;
  /// Adds what state() gave, or a sum of several, int64 or float64. Throws Error for another size.
  void merge(const at::Tensor& state);
  /// For the next epoch.
  void clear();

  LedgerReport report() const;

 private:
  std::vector<uint8_t> uses_;
};

}  // namespace lockstep::data
