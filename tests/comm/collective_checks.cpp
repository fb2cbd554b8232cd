// SPDX-License-Identifier: Apache-2.0
#include "comm/collective_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <set>
#include <stdexcept>

#include "lockstep/base/error.h"

namespace lockstep::comm::test {
namespace {

void expect_equal(const at::Tensor& got, const at::Tensor& expected, const Group& group, const std::string& what) {
  if (at::equal(got, expected)) return;
  const auto differ = (got != expected).flatten().nonzero();
  const int64_t at = differ.numel() > 0 ? differ[0].item<int64_t>() : -1;
  throw std::runtime_error(text(what, " on rank ", group.rank(), " of ", group.size(), " (", group.backend(), "), ",
                                got.scalar_type(), got.sizes(), ": ", differ.numel(), " elements differ, first at ",
                                at));
}

at::Tensor combine(ReduceOp op, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case ReduceOp::min:
      return at::minimum(a, b);
    case ReduceOp::max:
      return at::maximum(a, b);
    default:
      return a.scalar_type() == at::kBool ? at::logical_or(a, b) : a + b;
  }
}

at::Tensor tree(ReduceOp op, int begin, int end, const std::function<at::Tensor(int)>& leaf) {
  if (end - begin == 1) return leaf(begin);
  int half = 1;
  while (half * 2 < end - begin) half *= 2;
  return combine(op, tree(op, begin, begin + half, leaf), tree(op, begin + half, end, leaf));
}

std::vector<ReduceOp> operations(at::ScalarType dtype) {
  if (at::isFloatingType(dtype)) return {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max};
  return {ReduceOp::sum, ReduceOp::min, ReduceOp::max};
}

at::Tensor joined(const Group& group, int64_t length, at::ScalarType dtype) {
  std::vector<at::Tensor> parts;
  for (int r = 0; r < group.size(); ++r) parts.push_back(contribution(r, length, dtype));
  return at::cat(parts);
}

}  // namespace

namespace {

at::Tensor make_contribution(int rank, int64_t length, at::ScalarType dtype, int64_t salt) {
  // Values whose sum depends on the order of additions, from integer arithmetic.
  const auto i = at::arange(length, at::kLong);
  const auto mixed = ((i + 1) * (rank * 7919 + 104729) + salt * 31 + rank) % 100003;
  if (dtype == at::kBool) return mixed % 3 == rank % 2;
  if (!at::isFloatingType(dtype)) return (mixed - 50000).to(dtype);
  return ((mixed.to(at::kDouble) - 50000) / 313).to(dtype);
}

// Every rank works out what all ranks contribute; threads share what was worked out for the current sizes. Each gets a
// copy, and a pointer of the standard library counts who still reads: ThreadSanitizer sees that one, not libtorch's.
at::Tensor remembered(const std::array<int64_t, 5>& key, const std::function<at::Tensor()>& make) {
  static std::mutex mutex;
  static std::map<std::array<int64_t, 5>, std::shared_ptr<const at::Tensor>> memory;
  const auto find = [&]() -> std::shared_ptr<const at::Tensor> {
    const std::lock_guard lock(mutex);
    const auto found = memory.find(key);
    return found == memory.end() ? nullptr : found->second;
  };
  if (const auto known = find()) return known->clone();
  const auto made = std::make_shared<const at::Tensor>(make());
  {
    const std::lock_guard lock(mutex);
    if (memory.size() > 200) memory.clear();
    memory.emplace(key, made);
  }
  return made->clone();
}

}  // namespace

at::Tensor contribution(int rank, int64_t length, at::ScalarType dtype, int64_t salt) {
  return remembered({-1, rank, length, static_cast<int64_t>(dtype), salt},
                    [&] { return make_contribution(rank, length, dtype, salt); });
}

at::Tensor tree_reference(ReduceOp op, int size, int64_t length, at::ScalarType dtype, int64_t salt) {
  return remembered({static_cast<int64_t>(op), size, length, static_cast<int64_t>(dtype), salt}, [&] {
    const auto sum = tree(op, 0, size, [&](int r) { return contribution(r, length, dtype, salt); });
    return op == ReduceOp::mean ? sum / size : sum;
  });
}

void check_all_reduce(const Group& group, int64_t length, at::ScalarType dtype) {
  for (ReduceOp op : operations(dtype)) {
    auto tensor = contribution(group.rank(), length, dtype);
    group.all_reduce(tensor, op).wait();
    expect_equal(tensor, tree_reference(op, group.size(), length, dtype), group, text("all_reduce ", name_of(op)));
  }
}

void check_coalesced(const Group& group, at::ScalarType dtype) {
  TensorList tensors, wholes, roots;
  const std::vector<int64_t> lengths{3, 0, 1000, 1, 17};
  for (size_t t = 0; t < lengths.size(); ++t) {
    tensors.push_back(contribution(group.rank(), lengths[t], dtype, t));
    wholes.push_back(at::empty({group.size() * lengths[t]}, dtype));
    roots.push_back(tensors.back().clone());
  }
  group.all_gather(wholes, tensors).wait();
  group.broadcast(roots, group.size() - 1).wait();
  group.all_reduce(tensors).wait();
  for (size_t t = 0; t < lengths.size(); ++t) {
    expect_equal(tensors[t], tree_reference(ReduceOp::sum, group.size(), lengths[t], dtype, t), group,
                 "all_reduce of a list");
    expect_equal(roots[t], contribution(group.size() - 1, lengths[t], dtype, t), group, "broadcast of a list");
    for (int r = 0; r < group.size(); ++r)
      expect_equal(wholes[t].slice(0, r * lengths[t], (r + 1) * lengths[t]), contribution(r, lengths[t], dtype, t),
                   group, "all_gather of a list");
  }
}

void check_ring(const Group& group, int64_t length, at::ScalarType dtype) {
  auto tensor = contribution(group.rank(), length, dtype);
  group.all_reduce(tensor, ReduceOp::sum, {.order = Order::ring}).wait();
  const auto expected = tree_reference(ReduceOp::sum, group.size(), length, dtype);
  const bool low = dtype == at::kHalf || dtype == at::kBFloat16;
  const bool close = at::isFloatingType(dtype) ? at::allclose(tensor.to(at::kDouble), expected.to(at::kDouble),
                                                              low ? 0.05 : 1e-4, low ? 8 : 1e-3)
                                               : at::equal(tensor, expected);
  if (!close)
    throw std::runtime_error(text("ring all_reduce of ", dtype, "[", length, "] on rank ", group.rank(), " is wrong"));
}

void check_reduce_scatter(const Group& group, int64_t length, at::ScalarType dtype) {
  for (ReduceOp op : operations(dtype)) {
    const auto input = contribution(group.rank(), length * group.size(), dtype);
    const auto mine = [&](const at::Tensor& whole) {
      return whole.slice(0, group.rank() * length, (group.rank() + 1) * length);
    };
    const auto expected = mine(tree_reference(op, group.size(), length * group.size(), dtype));
    auto output = at::empty({length}, dtype);
    group.reduce_scatter(output, input, op).wait();
    expect_equal(output, expected, group, text("reduce_scatter ", name_of(op)));
    expect_equal(input, contribution(group.rank(), length * group.size(), dtype), group, "the input of reduce_scatter");
    group.reduce_scatter(mine(input), input, op).wait();
    expect_equal(mine(input), expected, group, text("reduce_scatter in place ", name_of(op)));
  }
}

void check_gathers(const Group& group, int64_t length, at::ScalarType dtype) {
  const auto input = contribution(group.rank(), length, dtype);
  const auto expected = joined(group, length, dtype);
  auto output = at::empty({length * group.size()}, dtype);
  group.all_gather(output, input).wait();
  expect_equal(output, expected, group, "all_gather");

  auto in_place = at::empty({length * group.size()}, dtype);
  auto mine = in_place.slice(0, group.rank() * length, (group.rank() + 1) * length);
  mine.copy_(input);
  group.all_gather(in_place, mine).wait();
  expect_equal(in_place, expected, group, "all_gather in place");

  const int root = group.size() - 1;
  auto gathered = group.rank() == root ? at::empty({group.size(), length}, dtype) : at::Tensor();
  group.gather(gathered, input, root).wait();
  if (group.rank() == root) expect_equal(gathered.flatten(), expected, group, "gather");
}

void check_scatter(const Group& group, int64_t length, at::ScalarType dtype) {
  for (int root : {0, group.size() - 1}) {
    auto output = at::empty({length}, dtype);
    group.scatter(output, group.rank() == root ? joined(group, length, dtype) : at::Tensor(), root).wait();
    expect_equal(output, contribution(group.rank(), length, dtype), group, "scatter");
  }
}

void check_broadcast(const Group& group, int64_t length, at::ScalarType dtype) {
  for (int root = 0; root < group.size(); ++root) {
    auto tensor = contribution(group.rank(), length, dtype);
    group.broadcast(tensor, root).wait();
    expect_equal(tensor, contribution(root, length, dtype), group, "broadcast");
  }
}

void check_all_to_all(const Group& group, int64_t length, at::ScalarType dtype) {
  // Rank r sends part t, of length rows and (r + 2t) more, to rank t; some parts are empty.
  const auto rows = [&](int from, int to) { return from == to + 1 ? 0 : length + from + 2 * to; };
  const auto part = [&](int from, int to) {
    return contribution(from, rows(from, to) * 2, dtype, to).reshape({rows(from, to), 2});
  };
  std::vector<at::Tensor> sent, expected;
  std::vector<int64_t> input_counts, output_counts;
  for (int r = 0; r < group.size(); ++r) {
    sent.push_back(part(group.rank(), r));
    expected.push_back(part(r, group.rank()));
    input_counts.push_back(sent.back().size(0));
    output_counts.push_back(expected.back().size(0));
  }
  const auto wanted = at::cat(expected);
  auto output = at::empty_like(wanted);
  group.all_to_all(output, at::cat(sent), output_counts, input_counts).wait();
  expect_equal(output, wanted, group, "all_to_all with counts");

  auto even = at::empty({group.size(), length}, dtype);
  group.all_to_all(even, contribution(group.rank(), group.size() * length, dtype).reshape({group.size(), length}))
      .wait();
  for (int r = 0; r < group.size(); ++r)
    expect_equal(
        even[r],
        contribution(r, group.size() * length, dtype).slice(0, group.rank() * length, (group.rank() + 1) * length),
        group, "all_to_all");
}

void check_messages(const Group& group, int64_t length, at::ScalarType dtype) {
  if (group.size() == 1) return;
  // A ring of messages, two with one tag and one with another, received in another order than sent.
  const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  std::vector<Work> works;
  const auto message = [&](int rank, int64_t which) { return contribution(rank, length, dtype, which); };
  for (auto [which, tag] : {std::pair{1, 0}, std::pair{2, 5}, std::pair{3, 0}, std::pair{4, 16384}})
    works.push_back(group.send(message(group.rank(), which), next, tag));
  auto second = at::empty({length}, dtype), first = at::empty({length}, dtype), third = at::empty({length}, dtype);
  auto high = at::empty({length}, dtype);
  works.push_back(group.recv(high, previous, 16384));
  works.push_back(group.recv(second, previous, 5));
  works.push_back(group.recv(first, previous));
  works.push_back(group.recv(third, previous));
  for (auto& work : works) work.wait();
  expect_equal(first, message(previous, 1), group, "first message");
  expect_equal(second, message(previous, 2), group, "message of another tag");
  expect_equal(high, message(previous, 4), group, "message of a high tag");
  expect_equal(third, message(previous, 3), group, "third message");
}

void check_non_contiguous(const Group& group) {
  const auto base = contribution(group.rank(), 60, at::kFloat).reshape({6, 10});
  auto transposed = base.clone().t();
  group.all_reduce(transposed).wait();
  const auto sum = tree_reference(ReduceOp::sum, group.size(), 60, at::kFloat).reshape({6, 10}).t();
  expect_equal(transposed, sum, group, "all_reduce of a transposed tensor");
  auto wide = at::zeros({group.size() * 10, 12});
  auto target = wide.slice(1, 0, 12, 2);
  group.all_gather(target, base.t()).wait();
  for (int r = 0; r < group.size(); ++r)
    expect_equal(target.slice(0, r * 10, r * 10 + 10), contribution(r, 60, at::kFloat).reshape({6, 10}).t(), group,
                 "all_gather into a strided tensor");
  expect_equal(wide.slice(1, 1, 12, 2), at::zeros({group.size() * 10, 6}), group, "what lies between the strides");
  auto scalar = at::full({}, group.rank() + 1.0);
  group.all_reduce(scalar).wait();
  expect_equal(scalar, at::full({}, group.size() * (group.size() + 1) / 2.0), group, "all_reduce of a scalar");
}

void check_asynchronous(const Group& group) {
  std::vector<at::Tensor> tensors;
  std::vector<Work> works;
  for (int64_t i = 0; i < 20; ++i) {
    tensors.push_back(contribution(group.rank(), 100 * i, at::kFloat, i));
    works.push_back(group.all_reduce(tensors.back()));
  }
  for (int64_t i = 19; i >= 0; --i) {
    works[i].wait();
    works[i].wait();  // a second time changes nothing
    if (!works[i].done()) throw std::runtime_error("an operation that was waited for is not done");
    expect_equal(tensors[i], tree_reference(ReduceOp::sum, group.size(), 100 * i, at::kFloat, i), group,
                 "one of many all_reduce");
  }
}

void check_split(const Group& group) {
  // Odd and even ranks, in reverse order.
  const auto half = group.split(group.rank() % 2, -group.rank());
  const int members = (group.size() + 1 - group.rank() % 2) / 2;
  if (half.size() != members || half.rank() != members - 1 - group.rank() / 2)
    throw std::runtime_error(text("split gave rank ", half.rank(), " of ", half.size()));
  auto sum = at::full({1000}, group.rank(), at::kLong);
  half.all_reduce(sum).wait();
  int64_t expected = 0;
  for (int r = group.rank() % 2; r < group.size(); r += 2) expected += r;
  expect_equal(sum, at::full({1000}, expected, at::kLong), group, "all_reduce of a part");
  const auto alone = group.split(group.rank() == 0 ? -1 : 1);
  if (alone.size() != (group.rank() == 0 ? 1 : group.size() - 1))
    throw std::runtime_error("split without rank 0 is wrong");
  alone.barrier().wait();
}

void check_inference_mode(const Group& group) {
  const c10::InferenceMode mode;
  auto sum = contribution(group.rank(), 1000, at::kFloat).clone();
  if (!sum.is_inference()) throw std::runtime_error("the tensor is none of inference mode");
  group.all_reduce(sum).wait();
  expect_equal(sum, tree_reference(ReduceOp::sum, group.size(), 1000, at::kFloat), group,
               "all_reduce in inference mode");
  auto gathered = at::empty({group.size() * 10});
  group.all_gather(gathered, contribution(group.rank(), 10, at::kFloat).clone()).wait();
  expect_equal(gathered, joined(group, 10, at::kFloat), group, "all_gather in inference mode");
}

void check_bytes(const Group& group) {
  for (int64_t length : {0, 1, 4096}) {
    check_gathers(group, length, at::kByte);
    check_broadcast(group, length, at::kByte);
    check_scatter(group, length, at::kByte);
    check_all_to_all(group, length, at::kByte);
    check_messages(group, length, at::kByte);
  }
}

void check_everything(const Group& group, int64_t longest) {
  for (auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kBool}) {
    for (int64_t length : std::set<int64_t>{0, 1, 15, 4096, longest}) {
      if (length > longest) continue;
      // The longest only where it tells: every dtype takes the same path.
      if (length > 4096 && dtype != at::kFloat && dtype != at::kBFloat16) continue;
      check_all_reduce(group, length, dtype);
      check_ring(group, length, dtype);
      check_reduce_scatter(group, length > 4096 ? length / group.size() : length, dtype);
      check_gathers(group, length > 4096 ? length / group.size() : length, dtype);
      if (length > 4096) continue;
      check_broadcast(group, length, dtype);
      check_scatter(group, length, dtype);
      check_all_to_all(group, length, dtype);
      check_messages(group, length, dtype);
    }
    check_coalesced(group, dtype);
  }
  check_bytes(group);
  check_non_contiguous(group);
  check_inference_mode(group);
  check_asynchronous(group);
  check_split(group);
  group.barrier().wait();
}

}  // namespace lockstep::comm::test
