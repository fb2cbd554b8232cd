// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/selftest.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/numerics/reduce.h"

namespace lockstep::comm {
namespace {

// Every rank can work out every rank's input. Magnitudes differ widely, so that another order of additions shows.
at::Tensor input_of(int rank, int64_t count, at::ScalarType dtype) {
  auto values = at::empty({count}, at::kDouble);
  double* value = values.data_ptr<double>();
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = (static_cast<uint64_t>(rank) << 40) + static_cast<uint64_t>(i) + 1;  // splitmix64
    for (uint64_t factor : {0x9E3779B97F4A7C15u, 0xBF58476D1CE4E5B9u}) bits = (bits ^ (bits >> 30)) * factor;
    bits ^= bits >> 31;
    const double fraction = static_cast<double>(bits >> 11) * 0x1p-53 - 0.5;
    value[i] =
        at::isFloatingType(dtype) ? std::ldexp(fraction, static_cast<int>(bits % 12)) : std::floor(fraction * 200);
  }
  return dtype == at::kBool ? values > 30 : values.to(dtype);
}

std::string name_of_call(const char* call, at::ScalarType dtype, int64_t count, const char* how = "") {
  return text(call, "(", how, *how == '\0' ? "" : ", ", dtype, "[", count, "])");
}

class Checker {
 public:
  Checker(const Group& group, c10::Device device) : group_(group), device_(device), size_(group.size()) {}

  void check_dtype(at::ScalarType dtype, int64_t count) {
    check_reductions(dtype, count);
    check_gathers(dtype, count);
    check_from_root(dtype, count);
    check_all_to_all(dtype, count);
    if (size_ > 1) check_messages(dtype, count);
  }

  void check_lists();
  void check_subgroups();
  SelftestReport report;

 private:
  void check_reductions(at::ScalarType dtype, int64_t count);
  void check_gathers(at::ScalarType dtype, int64_t count);
  void check_from_root(at::ScalarType dtype, int64_t count);
  void check_all_to_all(at::ScalarType dtype, int64_t count);
  void check_messages(at::ScalarType dtype, int64_t count);

  at::Tensor input(int rank, int64_t count, at::ScalarType dtype) const {
    return input_of(rank, count, dtype).to(device_);
  }
  at::Tensor output(int64_t count, at::ScalarType dtype) const {
    return at::zeros({count}, at::device(device_).dtype(dtype));
  }
  at::Tensor all_inputs(int64_t count, at::ScalarType dtype) const {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < size_; ++rank) parts.push_back(input_of(rank, count, dtype));
    return at::cat(parts);
  }
  at::Tensor reduced(int64_t count, at::ScalarType dtype, ReduceOp op) const;
  void expect(const std::string& call, const at::Tensor& got, const at::Tensor& expected);

  const Group& group_;
  const c10::Device device_;
  const int size_;
};

// One thread adds in the tree's order what the ranks would contribute.
at::Tensor Checker::reduced(int64_t count, at::ScalarType dtype, ReduceOp op) const {
  std::vector<at::Tensor> inputs;
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < size_; ++rank) {
    inputs.push_back(input_of(rank, count, dtype));
    sources.push_back(static_cast<const std::byte*>(inputs.back().const_data_ptr()));
  }
  auto result = at::empty({count}, dtype);
  std::byte* const destination[] = {static_cast<std::byte*>(result.data_ptr())};
  reduce(TreeProgram::of_leaves(size_), op, dtype, sources, destination, count, size_);
  return result;
}

void Checker::expect(const std::string& call, const at::Tensor& got, const at::Tensor& expected) {
  ++report.checks;
  const auto a = got.cpu().contiguous();
  const auto bytes = static_cast<int64_t>(a.element_size());
  const auto* x = static_cast<const char*>(a.const_data_ptr());
  const auto* y = static_cast<const char*>(expected.const_data_ptr());
  int64_t first = -1;
  int64_t differ = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    if (std::memcmp(x + i * bytes, y + i * bytes, bytes) != 0 && differ++ == 0) first = i;
  if (differ > 0)
    report.failures.push_back(text(call, ": element ", first, " is ", a[first].item().to<double>(), ", expected ",
                                   expected[first].item().to<double>(), " (", differ, " of ", a.numel(), " differ)"));
}

void Checker::check_reductions(at::ScalarType dtype, int64_t count) {
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max}) {
    if (op == ReduceOp::mean && !at::isFloatingType(dtype)) continue;
    auto tensor = input(group_.rank(), count, dtype);
    group_.all_reduce(tensor, op).wait();
    expect(name_of_call("all_reduce", dtype, count, name_of(op)), tensor, reduced(count, dtype, op));
  }
  if (dtype == at::kInt || dtype == at::kLong) {  // exact in any order
    auto tensor = input(group_.rank(), count, dtype);
    group_.all_reduce(tensor, ReduceOp::sum, {.order = Order::ring}).wait();
    expect(name_of_call("all_reduce", dtype, count, "sum, ring"), tensor, reduced(count, dtype, ReduceOp::sum));
  }
  auto mine = output(count, dtype);
  group_.reduce_scatter(mine, input(group_.rank(), count * size_, dtype)).wait();
  expect(name_of_call("reduce_scatter", dtype, count, "sum"), mine,
         reduced(count * size_, dtype, ReduceOp::sum).narrow(0, group_.rank() * count, count).contiguous());
}

void Checker::check_gathers(at::ScalarType dtype, int64_t count) {
  const auto mine = input(group_.rank(), count, dtype);
  const auto expected = all_inputs(count, dtype);
  auto all = output(count * size_, dtype);
  group_.all_gather(all, mine).wait();
  expect(name_of_call("all_gather", dtype, count), all, expected);

  const int root = size_ - 1;
  auto gathered = group_.rank() == root ? output(count * size_, dtype) : at::Tensor();
  group_.gather(gathered, mine, root).wait();
  if (group_.rank() == root) expect(name_of_call("gather", dtype, count), gathered, expected);
}

void Checker::check_from_root(at::ScalarType dtype, int64_t count) {
  const int root = size_ / 2;
  auto tensor = input(group_.rank(), count, dtype);
  group_.broadcast(tensor, root).wait();
  expect(name_of_call("broadcast", dtype, count), tensor, input_of(root, count, dtype));

  auto part = output(count, dtype);
  group_.scatter(part, group_.rank() == root ? input(root, count * size_, dtype) : at::Tensor(), root).wait();
  expect(name_of_call("scatter", dtype, count), part,
         input_of(root, count * size_, dtype).narrow(0, group_.rank() * count, count).contiguous());
}

// Rank r sends rank s the (r + s)-th part of `count` rows, and (r + s) % 3 rows where the parts are uneven.
void Checker::check_all_to_all(at::ScalarType dtype, int64_t count) {
  for (const bool uneven : {false, true}) {
    const auto rows = [&](int from, int to) { return uneven ? (from + to) % 3 * count / 2 : count; };
    const auto sent_by = [&](int from) {
      int64_t total = 0;
      for (int to = 0; to < size_; ++to) total += rows(from, to);
      return total;
    };
    std::vector<int64_t> output_counts, input_counts;
    std::vector<at::Tensor> expected;
    for (int other = 0; other < size_; ++other) {
      output_counts.push_back(rows(other, group_.rank()));
      input_counts.push_back(rows(group_.rank(), other));
      int64_t before = 0;
      for (int to = 0; to < group_.rank(); ++to) before += rows(other, to);
      expected.push_back(input_of(other, sent_by(other), dtype).narrow(0, before, rows(other, group_.rank())));
    }
    auto received = output(std::accumulate(output_counts.begin(), output_counts.end(), int64_t{0}), dtype);
    const auto sent = input(group_.rank(), sent_by(group_.rank()), dtype);
    group_.all_to_all(received, sent, output_counts, input_counts).wait();
    expect(name_of_call("all_to_all", dtype, count, uneven ? "uneven" : ""), received, at::cat(expected));
  }
}

// Round the ring, two messages at once that only their tags tell apart.
void Checker::check_messages(at::ScalarType dtype, int64_t count) {
  const int next = (group_.rank() + 1) % size_;
  const int previous = (group_.rank() + size_ - 1) % size_;
  auto first = output(count, dtype);
  auto second = output(count, dtype);
  auto receive_second = group_.recv(second, previous, 2);
  auto receive_first = group_.recv(first, previous, 1);
  auto send_first = group_.send(input(group_.rank(), count, dtype), next, 1);
  auto send_second = group_.send(input(group_.rank() + size_, count, dtype), next, 2);
  for (Work* work : {&send_first, &send_second, &receive_first, &receive_second}) work->wait();
  expect(name_of_call("send and recv", dtype, count, "tag 1"), first, input_of(previous, count, dtype));
  expect(name_of_call("send and recv", dtype, count, "tag 2"), second, input_of(previous + size_, count, dtype));
}

void Checker::check_lists() {
  TensorList tensors;
  std::vector<at::Tensor> expected;
  for (const auto& [dtype, count] : {std::pair(at::kFloat, 33), {at::kLong, 5}, {at::kFloat, 0}, {at::kHalf, 100}}) {
    tensors.push_back(input(group_.rank(), count, dtype));
    expected.push_back(reduced(count, dtype, ReduceOp::sum));
  }
  group_.all_reduce(tensors).wait();
  for (size_t t = 0; t < tensors.size(); ++t)
    expect(text("all_reduce(sum, tensor ", t, " of a list)"), tensors[t], expected[t]);
  group_.barrier().wait();
}

void Checker::check_subgroups() {
  const auto half = group_.split(group_.rank() % 2);
  auto tensor = at::full({3}, group_.rank(), at::device(device_).dtype(at::kLong));
  half.all_reduce(tensor).wait();
  int64_t sum = 0;
  for (int rank = group_.rank() % 2; rank < size_; rank += 2) sum += rank;
  expect("split, then all_reduce(sum, Long[3])", tensor, at::full({3}, sum, at::kLong));
}

}  // namespace

SelftestReport selftest(const Group& group, c10::Device device) {
  Checker checker(group, device);
  try {
    for (int64_t count : {0, 1, 15, 4097})
      for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kBool})
        checker.check_dtype(dtype, count);
    checker.check_lists();
    checker.check_subgroups();
  } catch (const std::exception& error) {
    checker.report.failures.push_back(error.what());
  }
  return std::move(checker.report);
}

}  // namespace lockstep::comm
