// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/culprit.h"

#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/failure/bounded.h"

namespace lockstep::comm {
namespace {

std::string key_of(int rank) {
  return "failed/" + std::to_string(rank);
}

int ask(c10d::Store& store, int rank, int size, int suspect, std::chrono::milliseconds patience) {
  store.set(key_of(rank), std::to_string(suspect));
  const auto until = std::chrono::steady_clock::now() + patience;
  int silent = -1;
  do {
    silent = -1;
    for (int r = 0; r < size; ++r)
      if (r != rank && (silent < 0 || r == suspect) && !store.check({key_of(r)})) silent = r;
    if (silent < 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (std::chrono::steady_clock::now() < until);
  // The first verdict stands, so that everybody names the same rank.
  const auto verdict = store.compareSet("failed/verdict", "", std::to_string(silent >= 0 ? silent : suspect));
  return std::stoi(std::string(verdict.begin(), verdict.end()));
}

}  // namespace

int culprit_of_failure(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, int suspect,
                       std::chrono::milliseconds patience) noexcept {
  try {
    // The store may hang with the process that serves it, so nobody waits for it longer than he can afford.
    const auto verdict = within(patience, [=] { return ask(*store, rank, size, suspect, patience * 3 / 4); });
    return verdict.value_or(suspect);
  } catch (...) {
    return suspect;
  }
}

}  // namespace lockstep::comm
