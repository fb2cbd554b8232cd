// SPDX-License-Identifier: Apache-2.0
#include "parallel/team/agreement.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "lockstep/base/detail/digits.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/error.h"
#include "parallel/team/divergence.h"

namespace lockstep::parallel {
namespace {

at::Tensor bytes_of(const std::string& all) {
  const auto bytes = at::empty({static_cast<int64_t>(all.size())}, at::kByte);
  std::ranges::copy(all, bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

std::string lines_of(const Facts& facts) {
  std::string all;
  for (const std::string& fact : facts) all += fact + '\n';
  return all;
}

Facts facts_in(const std::string& lines) {
  Facts facts(1);
  for (const char c : lines)
    if (c == '\n')
      facts.emplace_back();
    else
      facts.back() += c;
  facts.pop_back();
  return facts;
}

std::string fact(const std::string& name, const at::Tensor& tensor) {
  return tensor.defined() ? text(name, ": ", tensor.scalar_type(), tensor.sizes()) : name + ": undefined";
}

}  // namespace

at::Tensor broadcast_bytes(const TeamState& team, at::Tensor bytes, int64_t from) {
  const auto size = at::full({1}, bytes.numel(), at::kLong);
  team.control.broadcast({size}, static_cast<int>(from)).wait();
  if (team.options.group.rank() != from) bytes = at::empty({size.item<int64_t>()}, at::kByte);
  team.control.broadcast({bytes}, static_cast<int>(from)).wait();
  return bytes;
}

std::string broadcast_text(const comm::Group& group, const std::string& mine, int from) {
  auto bytes = bytes_of(mine);
  const auto size = at::full({1}, bytes.numel(), at::kLong);
  group.broadcast({size}, from).wait();
  if (group.rank() != from) bytes = at::empty({size.item<int64_t>()}, at::kByte);
  group.broadcast({bytes}, from).wait();
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel())};
}

void agree(const TeamState& team, const char* operation, const Facts& mine) {
  const comm::Group& group = team.everyone;
  if (group.size() == 1) return;
  Facts all_of_mine{operation};  // one process may share a network where another makes an optimiser
  all_of_mine.insert(all_of_mine.end(), mine.begin(), mine.end());
  const std::string lines = lines_of(all_of_mine);
  const auto hashes = at::empty({group.size()}, at::kLong);
  group.all_gather(hashes, hashes_of({{operation, bytes_of(lines)}})).wait();
  const std::span<const int64_t> all(hashes.const_data_ptr<int64_t>(), hashes.numel());
  const auto other = std::ranges::find_if(all, [&](int64_t hash) { return hash != all[0]; }) - all.begin();
  if (other == std::ssize(all)) return;

  const Facts first = facts_in(broadcast_text(group, lines, 0));
  const Facts theirs = facts_in(broadcast_text(group, lines, static_cast<int>(other)));
  try {  // a process that has failed closes its connections, so all know before one does
    group.barrier().wait();
  } catch (const comm::CommError& error) {
    log_debug(error.what());
  }
  const auto [a, b] = std::ranges::mismatch(first, theirs);
  fail(operation, "process ", other, " has '", b == theirs.end() ? "nothing more" : *b, "' where process 0 has '",
       a == first.end() ? "nothing more" : *a, "', expected the same on all processes");
}

Facts facts_of(const TeamState& team) {
  const TeamOptions& options = team.options;
  Facts facts{text("replicas ", options.replicas), text("seed ", options.seed),
              options.order == Order::canonical ? "order canonical" : "order ring", text("slices ", options.slices),
              text("audit ", options.audit)};
  for (int64_t p = 0; p < team.placement.processes(); ++p)
    facts.push_back(text("block ", p, " of ", team.placement.block(p).size()));
  return facts;
}

Facts facts_of(const torch::nn::Module& network, at::MemoryFormat format) {
  Facts facts;
  for (const auto& item : network.named_parameters())
    facts.push_back(text("parameter ", fact(item.key(), item.value())));
  for (const auto& item : network.named_buffers()) facts.push_back(text("buffer ", fact(item.key(), item.value())));
  facts.push_back(text("memory format ", format));
  return facts;
}

Facts facts_of(std::span<const OptimizedParameter> parameters, std::span<const Rule> rules,
               const OptimizerOptions& options) {
  Facts facts;
  for (const OptimizedParameter& parameter : parameters)
    facts.push_back(text(parameter.name, " in group ", parameter.group));
  for (size_t g = 0; g < rules.size(); ++g) {
    std::string kept;
    for (const std::string& name : state_names(rules[g])) kept += (kept.empty() ? " with " : ", ") + name;
    facts.push_back(text("group ", g, ": ", name_of(rules[g]), kept));
  }
  for (const auto& [name, value] : {std::pair{"clip_norm", options.clip_norm},
                                    {"clip_value", options.clip_value},
                                    {"initial_scale", options.initial_scale}})
    facts.push_back(text(name, " ", digits_of(value)));
  facts.push_back(text("growth_interval ", options.growth_interval));
  facts.push_back(text("wire ", to_string(options.wire), " from step ", start_of(options.wire)));
  facts.push_back(options.divide_state ? "divide_state" : "no divide_state");
  return facts;
}

}  // namespace lockstep::parallel
