// SPDX-License-Identifier: Apache-2.0
// All-reduce of float32 between the threads of one process, against PyTorch's Gloo (through c10d), Debian's OpenMPI and
// a plain memcpy; and, on Gloo's sockets, the canonical order against the ring. All contenders take turns in one run.
//
// The model that memcpy stands for: a reduction of R buffers of N bytes in place reads R N bytes and writes R N, which
// is what R threads do that copy N bytes each.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <barrier>
#include <cstring>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/gloo/gloo.h"
#include "comm/mpi_peer.h"
#include "comm/transport/transport_backend.h"
#include "lockstep/comm/group.h"
#include "support/interleave.h"
#include "support/program.h"

namespace lockstep::bench {
namespace {

using comm::Clock;
using comm::Group;

constexpr int kRounds = 7;
constexpr double kSecondsARound = 0.06;
constexpr std::chrono::minutes kTimeout{2};

/// Threads that stay, one a rank; run() gives them all the same work and returns when the last has finished.
class Ranks {
 public:
  explicit Ranks(int count) : begin_(count + 1), end_(count + 1) {
    for (int rank = 0; rank < count; ++rank)
      threads_.emplace_back([this, rank] {
        at::set_num_threads(1);
        for (;;) {
          begin_.arrive_and_wait();
          if (!work_) return;
          work_(rank);
          end_.arrive_and_wait();
        }
      });
  }
  ~Ranks() {
    work_ = {};
    begin_.arrive_and_wait();
    for (auto& thread : threads_) thread.join();
  }
  void run(std::function<void(int)> work) {
    work_ = std::move(work);
    begin_.arrive_and_wait();
    end_.arrive_and_wait();
  }
  int size() const { return static_cast<int>(threads_.size()); }

 private:
  std::barrier<> begin_, end_;
  std::function<void(int)> work_;
  std::vector<std::thread> threads_;
};

/// Seconds of one repetition, all ranks repeating `body` side by side; as often as fits a round.
class Timer {
 public:
  double operator()(Ranks& ranks, const std::function<void(int)>& body) {
    if (repetitions_ == 0) {
      const double once = measure(ranks, body, 2);
      repetitions_ = std::max<int64_t>(2, std::min<int64_t>(20000, static_cast<int64_t>(kSecondsARound / once)));
    }
    return measure(ranks, body, repetitions_);
  }

 private:
  static double measure(Ranks& ranks, const std::function<void(int)>& body, int64_t repetitions) {
    const auto start = Clock::now();
    ranks.run([&](int rank) {
      for (int64_t i = 0; i < repetitions; ++i) body(rank);
    });
    return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(repetitions);
  }
  int64_t repetitions_ = 0;
};

std::vector<Group> gloo_groups(Ranks& ranks) {
  std::vector<Group> groups(ranks.size());
  const auto store = c10::make_intrusive<c10d::HashStore>();
  ranks.run([&](int rank) {
    groups[rank] = Group(comm::make_transport_backend(
        comm::make_gloo_transport(store, rank, ranks.size(), "127.0.0.1", kTimeout), kTimeout));
  });
  return groups;
}

std::string size_text(int64_t bytes) {
  return bytes >= 1 << 20 ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 10) + " KiB";
}

nlohmann::json compare(Ranks& ranks, const std::vector<Group>& local, const std::vector<Group>& gloo, MpiPeer* mpi,
                       int64_t bytes) {
  std::vector<at::Tensor> tensors, copies;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    tensors.push_back(at::zeros({bytes / 4}));
    copies.push_back(at::zeros({bytes / 4}));
  }
  Timer time_local, time_gloo, time_ring, time_copy;
  std::vector<std::string> names{"local", "memcpy"};
  std::vector<std::function<double()>> contenders{
      [&] { return time_local(ranks, [&](int r) { local[r].all_reduce(tensors[r]).wait(); }); },
      [&] {
        return time_copy(ranks,
                         [&](int r) { std::memcpy(copies[r].mutable_data_ptr(), tensors[r].const_data_ptr(), bytes); });
      }};
  if (!gloo.empty()) {
    names.insert(names.end(), {"gloo ring", "gloo canonical"});
    // Order::ring is c10d's ProcessGroupGloo::allreduce and nothing else.
    contenders.push_back([&] {
      return time_ring(
          ranks, [&](int r) { gloo[r].all_reduce(tensors[r], ReduceOp::sum, {.order = comm::Order::ring}).wait(); });
    });
    contenders.push_back([&] { return time_gloo(ranks, [&](int r) { gloo[r].all_reduce(tensors[r]).wait(); }); });
  }
  int64_t mpi_repetitions = 0;
  if (mpi != nullptr) {
    names.push_back("openmpi");
    contenders.push_back([&] {
      if (mpi_repetitions == 0)
        mpi_repetitions = std::max<int64_t>(
            2, std::min<int64_t>(20000, static_cast<int64_t>(kSecondsARound / mpi->all_reduce(bytes, 2))));
      return mpi->all_reduce(bytes, mpi_repetitions);
    });
  }
  const auto seconds = interleave(kRounds, contenders);
  nlohmann::json row{{"ranks", ranks.size()}, {"bytes", bytes}};
  std::printf("%d x %-8s", ranks.size(), size_text(bytes).c_str());
  for (size_t c = 0; c < names.size(); ++c) {
    const double middle = median(seconds[c]);
    row[names[c]] = {{"seconds", middle}, {"times_local", ratio(seconds[c], seconds[0])}};
    std::printf("  %s %9.1f us", names[c].c_str(), middle * 1e6);
    if (c > 0) std::printf(" (x%.2f)", ratio(seconds[c], seconds[0]));
  }
  if (!gloo.empty()) {
    row["canonical_over_ring"] = ratio(seconds[3], seconds[2]);
    std::printf("  canonical/ring %.2f", row["canonical_over_ring"].get<double>());
  }
  std::printf("\n");
  std::fflush(stdout);
  return row;
}

nlohmann::json run(const Arguments&) {
  at::set_num_threads(1);
  nlohmann::json rows = nlohmann::json::array();
  std::printf("all-reduce of float32, median of %d interleaved rounds; (xK): K times the local backend's time\n",
              kRounds);
  for (int count : {2, 4}) {
    const auto mpi = MpiPeer::start(count);  // forks: before there are threads
    Ranks ranks(count);
    const auto local = comm::local_groups(count);
    const auto gloo = comm::has_gloo() ? gloo_groups(ranks) : std::vector<Group>();
    for (int64_t bytes : {int64_t{4} << 10, int64_t{1} << 20, int64_t{25} << 20, int64_t{100} << 20})
      rows.push_back(compare(ranks, local, gloo, mpi.get(), bytes));
  }
  return rows;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  return run_program(argc, argv,
                     {.measures = "All-reduces between threads, against Gloo, OpenMPI and memcpy.", .measure = run});
}
