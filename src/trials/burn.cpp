// SPDX-License-Identifier: Apache-2.0
#include "lockstep/trials/burn.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "lockstep/base/detail/processor.h"
#include "lockstep/base/error.h"
#include "lockstep/numerics/philox.h"
#include "lockstep/numerics/pinned.h"

namespace lockstep::trials {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kWorks{"a product of matrices", "a convolution and its gradients", "transcendental functions",
                            "a buffer of 16 MB"};
constexpr int64_t kWorkCount = kWorks.size();
constexpr int64_t kHostName = 64;  // bytes

std::vector<int> cores_of(const BurnOptions& options) {
  const std::vector<int> all = options.cores.empty() ? detail::allowed_cpus() : options.cores;
  std::vector<int> mine;
  for (size_t c = static_cast<size_t>(options.local_rank); c < all.size(); c += static_cast<size_t>(options.local_size))
    mine.push_back(all[c]);
  require(!mine.empty(), "burn", "process ", options.local_rank, " of ", options.local_size,
          " on this host has none of ", all.size(), " cores, expected no more processes than cores");
  return mine;
}

uint64_t hash_of(const at::Tensor& tensor) {  // FNV-1a by words: a single bit changes it
  uint64_t hash = 14695981039346656037u;
  const auto* at = static_cast<const std::byte*>(tensor.const_data_ptr());
  for (size_t left = tensor.nbytes(); left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * 1099511628211u;
    hash ^= hash >> 29;
  }
  return hash;
}

at::Tensor numbers(const RandomKey& key, at::IntArrayRef sizes) {
  at::Tensor out = at::empty(sizes, at::kFloat);
  float* const to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); i += 4) {
    const PhiloxBlock block = key.block(static_cast<uint64_t>(i));
    for (int64_t k = 0; k < 4 && i + k < out.numel(); ++k) to[i + k] = static_cast<float>(block.word[k]) * 0x1p-31F - 1;
  }
  return out;
}

at::Tensor convolve(const RandomKey& key) {
  const at::Tensor x = numbers(key, {2, 16, 24, 24}), weight = numbers(key.fold(1), {16, 16, 3, 3});
  const at::Tensor y = at::conv2d(x, weight, {}, 1, 1);
  const auto [from_x, from_weight, from_bias] = at::convolution_backward(y, x, weight, c10::nullopt, {1, 1}, {1, 1},
                                                                         {1, 1}, false, {0, 0}, 1, {true, true, false});
  return at::cat({y.flatten(), from_x.flatten(), from_weight.flatten()});
}

at::Tensor fill(const RandomKey& key) {
  at::Tensor buffer = at::empty({int64_t{2} << 20}, at::kLong);
  auto* const to = buffer.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < buffer.numel(); ++i)
    to[i] = static_cast<int64_t>((key.seed + static_cast<uint64_t>(i)) * 0x9E3779B97F4A7C15u);
  return buffer;
}

at::Tensor compute(int64_t work, int64_t round) {
  const RandomKey key = RandomKey{17}.fold(static_cast<uint64_t>(round)).fold(static_cast<uint64_t>(work));
  switch (work) {
    case 0:
      return at::mm(numbers(key, {192, 192}), numbers(key.fold(1), {192, 192}));
    case 1:
      return convolve(key);
    case 2:
      return numbers(key, {1 << 15}).exp().tanh().sin();
    default:
      return fill(key);
  }
}

// One core's results: a hash for each work of each round.
std::vector<int64_t> run_on(int core, const BurnOptions& options, Clock::time_point until) {
  std::vector<cpu_set_t> only(static_cast<size_t>(std::max(core, 0) / CPU_SETSIZE + 1));  // one alone ends at 1,024
  const size_t bytes = only.size() * sizeof(cpu_set_t);
  CPU_SET_S(core, bytes, only.data());
  require(sched_setaffinity(0, bytes, only.data()) == 0, "burn", "core ", core,
          " can't be used, expected one that this process may run on");
  const ReplicaNumerics numerics;
  const at::NoGradGuard no_grad;
  std::vector<int64_t> hashes;
  for (int64_t round = 0; round == 0 || Clock::now() < until; ++round)
    for (int64_t work = 0; work < kWorkCount; ++work) {
      const at::Tensor result = compute(work, round);
      if (options.disturb) options.disturb(core, round, result.mutable_data_ptr(), result.nbytes());
      hashes.push_back(static_cast<int64_t>(hash_of(result)));
    }
  return hashes;
}

std::vector<std::vector<int64_t>> run_here(const std::vector<int>& cores, const BurnOptions& options) {
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
  std::vector<std::vector<int64_t>> hashes(cores.size());
  std::vector<std::exception_ptr> errors(cores.size());
  const IntraOpThreadsKept kept;
  std::vector<std::thread> threads;
  for (size_t c = 0; c < cores.size(); ++c)
    threads.emplace_back([&, c] {
      try {
        hashes[c] = run_on(cores[c], options, until);
      } catch (...) {
        errors[c] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return hashes;
}

// What all processes have: rows of [rank's core, hashes...].
struct Table {
  std::vector<int> ranks, cores;
  std::vector<std::string> hosts;  // by rank
  at::Tensor hashes;               // [cores, rounds * works]
};

Table gather(const std::vector<int>& cores, const std::vector<std::vector<int64_t>>& hashes, const comm::Group& group) {
  int64_t shortest = static_cast<int64_t>(hashes[0].size());
  for (const auto& row : hashes) shortest = std::min(shortest, static_cast<int64_t>(row.size()));
  at::Tensor least = at::full({1}, shortest, at::kLong), most = at::full({1}, std::ssize(cores), at::kLong);
  group.all_reduce(least, ReduceOp::min).wait();
  group.all_reduce(most, ReduceOp::max).wait();
  const int64_t count = least.item<int64_t>() / kWorkCount * kWorkCount, rows = most.item<int64_t>();
  at::Tensor mine = at::full({rows, 1 + count}, -1, at::kLong), name = at::zeros({kHostName}, at::kByte);
  for (size_t c = 0; c < cores.size(); ++c) {
    auto* const row = mine[static_cast<int64_t>(c)].mutable_data_ptr<int64_t>();
    row[0] = cores[c];
    std::copy_n(hashes[c].begin(), count, row + 1);
  }
  gethostname(static_cast<char*>(name.mutable_data_ptr()), kHostName - 1);
  const at::Tensor all = at::empty({group.size() * rows, 1 + count}, at::kLong);
  const at::Tensor names = at::empty({group.size(), kHostName}, at::kByte);
  group.all_gather(all, mine).wait();
  group.all_gather(names, name.unsqueeze(0)).wait();
  Table out;
  std::vector<at::Tensor> kept;
  for (int64_t row = 0; row < all.size(0); ++row) {
    const auto core = all[row][0].item<int64_t>();
    if (core < 0) continue;
    out.ranks.push_back(static_cast<int>(row / rows));
    out.cores.push_back(static_cast<int>(core));
    kept.push_back(all[row].narrow(0, 1, count));
  }
  for (int rank = 0; rank < group.size(); ++rank)
    out.hosts.emplace_back(static_cast<const char*>(names[rank].const_data_ptr()));
  out.hashes = at::stack(kept);
  return out;
}

// What more than half of them have; none where there is no such value.
std::optional<int64_t> majority(const std::vector<int64_t>& values) {
  std::map<int64_t, size_t> votes;
  for (const int64_t value : values)
    if (2 * ++votes[value] > values.size()) return value;
  return std::nullopt;
}

BurnReport judge(const Table& table) {
  const auto cores = std::ssize(table.cores);
  BurnReport report{.cores = cores, .rounds = table.hashes.size(1) / kWorkCount};
  std::map<int64_t, WrongCore> wrong;
  std::map<int64_t, int64_t> last_round;
  const at::Tensor columns = table.hashes.t().contiguous();
  for (int64_t column = 0; column < columns.size(0); ++column) {
    const auto* const at = columns[column].const_data_ptr<int64_t>();
    const std::vector<int64_t> values(at, at + cores);
    const auto right = majority(values);
    report.undecided += !right;
    const int64_t round = column / kWorkCount;
    for (int64_t c = 0; right && c < cores; ++c) {
      if (values[c] == *right) continue;
      const int rank = table.ranks[c];
      WrongCore& core = wrong
                            .try_emplace(c, WrongCore{.rank = rank,
                                                      .host = table.hosts[rank],
                                                      .core = table.cores[c],
                                                      .rounds = 0,
                                                      .first_round = round,
                                                      .work = kWorks[column % kWorkCount]})
                            .first->second;
      if (last_round.try_emplace(c, -1).first->second != round) ++core.rounds;
      last_round[c] = round;
    }
  }
  for (const auto& [number, core] : wrong) report.wrong.push_back(core);
  return report;
}

}  // namespace

BurnReport burn(const BurnOptions& options, const comm::Group& group) {
  require(options.seconds > 0, "burn", "it is to take ", options.seconds, " s, expected more than 0");
  const std::vector<int> cores = cores_of(options);
  return judge(gather(cores, run_here(cores, options), group));
}

}  // namespace lockstep::trials
