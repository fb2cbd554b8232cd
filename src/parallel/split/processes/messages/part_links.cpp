// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/processes/messages/part_links.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <chrono>

namespace lockstep::parallel {
namespace {

constexpr int64_t kBytes = 256 * 1024;

}  // namespace

std::vector<double> measure_links(const comm::Group& messages, const PartPlace& place, int tag) {
  if (place.copy != 0) return {};
  const auto pass = [&](const at::Tensor& what, int64_t part, bool sends) {
    const int rank = place.rank_of(part);
    (sends ? messages.send(what, rank, tag) : messages.recv(what, rank, tag)).wait();
  };
  const auto bytes = at::zeros({kBytes}, at::kByte), found = at::zeros({place.parts - 1}, at::kDouble);
  for (int64_t link = 0; link + 1 < place.parts; ++link) {
    const bool begins = place.part == link;
    if (!begins && place.part != link + 1) continue;
    const int64_t other = begins ? link + 1 : link;
    std::chrono::steady_clock::time_point began;
    for (const at::Tensor& what : {bytes.narrow(0, 0, 1), bytes}) {  // the first one says that both are here
      began = std::chrono::steady_clock::now();
      pass(what, other, begins);
      pass(what, other, !begins);
    }
    const std::chrono::duration<double> both_ways = std::chrono::steady_clock::now() - began;
    found[link] = both_ways.count() / 2 / kBytes;
    if (begins && link > 0) pass(found.narrow(0, link, 1), 0, true);
  }
  for (int64_t link = 1; place.part == 0 && link + 1 < place.parts; ++link) pass(found.narrow(0, link, 1), link, false);
  return {found.const_data_ptr<double>(), found.const_data_ptr<double>() + found.numel()};
}

}  // namespace lockstep::parallel
