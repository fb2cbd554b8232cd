// SPDX-License-Identifier: Apache-2.0
#include "parallel/team/audit/audited_pass.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "parallel/team/divergence.h"

namespace lockstep::parallel {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor tensor_of(const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::kLong);
}

std::vector<int64_t> numbers_in(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

at::Tensor tensor_of(const std::string& words) {
  const auto bytes = at::empty({std::ssize(words)}, at::kByte);
  std::ranges::copy(words, bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

std::string text_in(const at::Tensor& bytes) {
  return {bytes.const_data_ptr<uint8_t>(), bytes.const_data_ptr<uint8_t>() + bytes.numel()};
}

}  // namespace

int odd_one_out(const Opinion& a, const Opinion& b, const Opinion& c) {
  if (a.hashes == b.hashes) return 2;
  if (a.hashes == c.hashes) return 1;
  return b.hashes == c.hashes ? 0 : -1;
}

Tensors packed(const Opinion& opinion) {
  return {tensor_of(opinion.hashes), tensor_of(opinion.cores), tensor_of(opinion.host), tensor_of(opinion.device)};
}

Opinion opinion_in(const Tensors& tensors, int process) {
  return {.hashes = numbers_in(tensors[0]),
          .cores = numbers_in(tensors[1]),
          .host = text_in(tensors[2]),
          .device = text_in(tensors[3]),
          .process = process};
}

Tensors packed(const AuditedPass& pass) {
  Tensors out{at::tensor(pass.scales, at::kDouble), tensor_of(pass.brought),
              tensor_of(std::vector<int64_t>{std::ssize(pass.buffers)})};
  out.insert(out.end(), pass.buffers.begin(), pass.buffers.end());
  out.insert(out.end(), pass.gathered.begin(), pass.gathered.end());
  return out;
}

AuditedPass pass_in(const Tensors& tensors) {
  const auto* scales = tensors[0].const_data_ptr<double>();
  const auto buffers = tensors.begin() + 3, gathered = buffers + tensors[2].item<int64_t>();
  return {.scales = {scales, scales + tensors[0].numel()},
          .buffers = {buffers, gathered},
          .gathered = {gathered, tensors.end()},
          .brought = numbers_in(tensors[1])};
}

Peers::Gathered RecordedPeers::begin_all_gather(const at::Tensor& mine) {
  const size_t number = brought_.size();
  require(number < pass_.gathered.size(), "audit", "the loss that is computed again exchanges more than the ",
          pass_.gathered.size(), " tensors that replica ", replica_, " exchanged, expected the same passes");
  brought_.push_back(hash_of(mine));
  return [all = pass_.gathered[number], device = mine.device()] { return all.to(device).clone(); };
}

}  // namespace lockstep::parallel
