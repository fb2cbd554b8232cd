// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/ledger.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr int64_t kCountBits = 8, kCountsInNumber = 6;  // 48 bits: sums of a few stay exact as float64
constexpr size_t kListed = 10;

std::string list_of(const std::vector<int64_t>& ids, int64_t all) {
  std::string listed;
  for (const int64_t id : ids) listed += text(listed.empty() ? "" : ", ", id);
  return all > static_cast<int64_t>(ids.size()) ? listed + ", ..." : listed;
}

}  // namespace

std::string LedgerReport::to_string() const {
  std::string written = text(examples - missed, " of ", examples, " examples were used");
  if (exactly_once()) return written + ", each once";
  if (missed > 0) written += text("; ", missed, " were missed (", list_of(first_missed, missed), ")");
  if (repeated > 0)
    written += text("; ", repeated, " were used more than once (", list_of(first_repeated, repeated), ")");
  return written;
}

Ledger::Ledger(int64_t examples) {
  require(examples > 0, "Ledger", "got ", examples, " examples, expected at least 1");
  uses_.resize(examples);
}

void Ledger::add(std::span<const int64_t> ids) {
  for (const int64_t id : ids) {
    if (id == -1) continue;
    require(0 <= id && id < examples(), "Ledger::add", "example ", id, ", expected one in [0, ", examples(), ")");
    const uint8_t before = std::atomic_ref(uses_[id]).fetch_add(1, std::memory_order_relaxed);
    if (before == 255) std::atomic_ref(uses_[id]).fetch_sub(1, std::memory_order_relaxed);
    require(before < 255, "Ledger::add", "example ", id,
            " was used 256 times, expected clear() at the end of an epoch");
  }
}

void Ledger::add(const Batch& batch) {
  add({batch.ids.const_data_ptr<int64_t>(), static_cast<size_t>(batch.ids.numel())});
}

at::Tensor Ledger::state() const {
  const int64_t numbers = (examples() + kCountsInNumber - 1) / kCountsInNumber;
  const at::Tensor state = at::empty({numbers}, at::kLong);
  auto* packed = state.mutable_data_ptr<int64_t>();
  for (int64_t n = 0; n < numbers; ++n) {
    packed[n] = 0;
    for (int64_t id = n * kCountsInNumber; id < std::min((n + 1) * kCountsInNumber, examples()); ++id)
      packed[n] |= int64_t{uses_[id]} << kCountBits * (id % kCountsInNumber);
  }
  return state;
}

void Ledger::merge(const at::Tensor& state) {
  const int64_t numbers = (examples() + kCountsInNumber - 1) / kCountsInNumber;
  require(state.defined() && state.dim() == 1 && state.size(0) == numbers &&
              (state.scalar_type() == at::kLong || state.scalar_type() == at::kDouble),
          "Ledger::merge", "got ", state.defined() ? text("a state of shape ", state.sizes()) : text("no tensor"),
          ", expected [", numbers, "] of int64 or float64, the state of a ledger of ", examples(), " examples");
  const at::Tensor given = state.to(at::kCPU, at::kLong).contiguous();
  const auto* packed = given.const_data_ptr<int64_t>();
  for (int64_t id = 0; id < examples(); ++id) {
    const int64_t more = packed[id / kCountsInNumber] >> kCountBits * (id % kCountsInNumber) & 255;
    require(uses_[id] + more <= 255, "Ledger::merge", "example ", id, " was used ", uses_[id] + more,
            " times, expected at most 255");
    uses_[id] = static_cast<uint8_t>(uses_[id] + more);
  }
}

void Ledger::clear() {
  std::ranges::fill(uses_, uint8_t{0});
}

LedgerReport Ledger::report() const {
  LedgerReport report{.examples = examples()};
  for (int64_t id = 0; id < examples(); ++id) {
    const uint8_t uses = uses_[id];
    report.uses += uses;
    if (uses == 0 && ++report.missed > 0 && report.first_missed.size() < kListed) report.first_missed.push_back(id);
    if (uses > 1 && ++report.repeated > 0 && report.first_repeated.size() < kListed)
      report.first_repeated.push_back(id);
  }
  return report;
}

}  // namespace lockstep::data
