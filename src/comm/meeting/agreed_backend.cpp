// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting/agreed_backend.h"

#include <algorithm>

#include "comm/meeting/store_text.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/error.h"

namespace lockstep::comm {
namespace {

std::string key_of(int rank) {
  return text("gpu of ", rank);
}

void await(c10d::Store& store, const std::string& key, int rank, std::chrono::milliseconds timeout) {
  try {
    store.wait({key}, timeout);
  } catch (const c10::Error&) {
    const double seconds = static_cast<double>(timeout.count()) / 1000;
    throw CommError(rank, "connect", seconds,
                    text("connect: rank ", rank, " did not come within ", seconds, " s to choose a backend"));
  }
}

// A store keeps no empty text apart from none, and what rank 0 says is a backend or an error.
constexpr char kSees = '+', kFails = '-';

std::string said_by_rank_0(c10d::Store& store, int size, const std::string& wanted, std::chrono::milliseconds timeout) {
  std::vector<std::string> gpus;
  for (int r = 0; r < size; ++r) {
    await(store, key_of(r), r, timeout);
    gpus.push_back(text_at(store, key_of(r)).substr(1));
  }
  try {
    return kSees + choose_backend(gpus, wanted);
  } catch (const Error& error) {
    return text(kFails, error.what());
  }
}

}  // namespace

std::string choose_backend(const std::vector<std::string>& gpus, const std::string& wanted) {
  const bool must = wanted == "nccl";
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    if (gpus[rank].empty()) {
      require(!must, "connect", "backend is nccl, and rank ", rank, " sees no GPU, expected one for each rank");
      return "gloo";
    }
    const auto first = static_cast<size_t>(std::ranges::find(gpus, gpus[rank]) - gpus.begin());
    if (first == rank) continue;
    require(!must, "connect", "backend is nccl, and ranks ", first, " and ", rank, " would both take ", gpus[rank],
            ", expected a GPU for each rank: start no more processes than there are GPUs, and show each process all of "
            "them or one of its own (CUDA_VISIBLE_DEVICES)");
    return "gloo";
  }
  return "nccl";
}

std::string agree_on_backend(c10d::Store& store, int rank, int size, const std::string& gpu, const std::string& wanted,
                             std::chrono::milliseconds timeout) {
  constexpr const char* kVerdict = "backend";
  store.set(key_of(rank), kSees + gpu);
  if (rank == 0) store.set(kVerdict, said_by_rank_0(store, size, wanted, timeout));
  await(store, kVerdict, 0, timeout);
  const std::string said = text_at(store, kVerdict);
  if (said[0] == kFails) throw Error(said.substr(1));
  return said.substr(1);
}

}  // namespace lockstep::comm
