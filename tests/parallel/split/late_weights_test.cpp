// SPDX-License-Identifier: Apache-2.0
// A backward pass in two halves gives each weight the gradient of an undivided one, to the last bit.
#include "parallel/split/late_weights.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <deque>
#include <future>
#include <stdexcept>
#include <thread>

#include "lockstep/context/detail/autograd_node.h"
#include "parallel/crew/crew.h"

namespace lockstep::parallel {
namespace {

using torch::Tensor;
using torch::autograd::edge_list;
using torch::autograd::variable_list;
namespace nn = torch::nn;

/// Stands for the part behind.
struct Beginning : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    came = gradients.at(0);
    return {};
  }
  Tensor came;
};

struct Part {
  Part() {
    torch::manual_seed(3);
    convolution = nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1));
    norm = nn::BatchNorm2d(4);
    plain = nn::Linear(nn::LinearOptions(16, 8).bias(false));
    twice = nn::Linear(8, 8);
    beside = nn::Linear(8, 8);
    out = nn::Linear(8, 5);
    offset = torch::randn({8}, torch::requires_grad());
  }
  Tensor forward(const Tensor& x) {
    Tensor y = torch::relu(norm(convolution(x))).flatten(2).flatten(0, 1);
    y = twice(torch::tanh(twice(plain(y))));
    y = y + beside(torch::ones({1, 8})) + offset.sin();  // which nothing behind the part leads to
    return out(y);
  }
  std::vector<Tensor> late() const {
    return {convolution->weight, convolution->bias, plain->weight, out->weight, out->bias};
  }
  std::vector<Tensor> early() const {
    return {norm->weight, norm->bias, twice->weight, twice->bias, beside->weight, beside->bias, offset};
  }
  void clear() const {
    for (const auto& list : {late(), early()})
      for (const Tensor& weight : list) weight.mutable_grad() = Tensor();
  }

  nn::Conv2d convolution{nullptr};
  nn::BatchNorm2d norm{nullptr};
  nn::Linear plain{nullptr}, twice{nullptr}, beside{nullptr}, out{nullptr};
  Tensor offset;
};

std::vector<Tensor> gradients_of(const std::vector<Tensor>& weights) {
  std::vector<Tensor> gradients;
  for (const Tensor& weight : weights) gradients.push_back(weight.grad().defined() ? weight.grad().clone() : Tensor());
  return gradients;
}

void expect_same(const std::vector<Tensor>& found, const std::vector<Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t t = 0; t < found.size(); ++t) EXPECT_TRUE(found[t].defined() && found[t].equal(expected[t])) << t;
}

void compute_next(LateWeights& weights) {
  weights.front()();
  weights.pop_front();
}

edge_list ends_of(const Tensor& y) {
  return {torch::autograd::impl::gradient_edge(y)};
}

TEST(LateWeights, AreThoseOfAnUndividedPass) {
  Part part;
  const Tensor x = torch::randn({2, 3, 4, 4}), gradient = torch::randn({8, 5});
  Tensor input = x.clone().requires_grad_();
  part.forward(input).backward(gradient);
  const auto late = gradients_of(part.late()), early = gradients_of(part.early());
  part.clear();

  const auto beginning = make_node<Beginning>();
  Tensor arrived = x.clone();
  torch::autograd::set_history(arrived, beginning);
  LateWeights weights;
  {
    const Tensor y = part.forward(arrived);
    PartGraph(ends_of(y), beginning.get()).go_back({gradient}, weights);
  }
  EXPECT_TRUE(beginning->came.equal(input.grad()));
  expect_same(gradients_of(part.early()), early);
  for (const Tensor& weight : part.late()) EXPECT_FALSE(weight.grad().defined());

  int layers = 0;
  for (; !weights.empty(); ++layers) {
    EXPECT_EQ(part.out->weight.grad().defined(), layers > 0);
    compute_next(weights);
  }
  EXPECT_EQ(layers, 3);
  expect_same(gradients_of(part.late()), late);
}

TEST(LateWeights, AddUpOverPasses) {
  Part part;
  const Tensor x = torch::randn({2, 3, 4, 4}), gradient = torch::randn({8, 5});
  for (int pass = 0; pass < 2; ++pass) part.forward(x.clone().requires_grad_()).backward(gradient);
  const auto late = gradients_of(part.late());
  part.clear();
  const auto beginning = make_node<Beginning>();
  LateWeights weights;
  for (int pass = 0; pass < 2; ++pass) {
    Tensor arrived = x.clone();
    torch::autograd::set_history(arrived, beginning);
    PartGraph(ends_of(part.forward(arrived)), beginning.get()).go_back({gradient}, weights);
  }
  while (!weights.empty()) compute_next(weights);
  expect_same(gradients_of(part.late()), late);
}

TEST(LateWeights, AreNoneWhereNobodyWaits) {
  Part part;
  LateWeights weights;
  const Tensor y = part.forward(torch::randn({2, 3, 4, 4}));
  PartGraph(ends_of(y), nullptr).go_back({torch::ones_like(y)}, weights);
  EXPECT_TRUE(weights.empty());
  for (const Tensor& weight : part.late()) EXPECT_TRUE(weight.grad().defined());
}

TEST(LateWeights, WithoutAGradientHaveNone) {
  Part part;
  const auto beginning = make_node<Beginning>();
  Tensor arrived = torch::randn({2, 3, 4, 4});
  torch::autograd::set_history(arrived, beginning);
  LateWeights weights;
  PartGraph(ends_of(part.forward(arrived)), beginning.get()).go_back({Tensor()}, weights);
  while (!weights.empty()) compute_next(weights);
  EXPECT_FALSE(beginning->came.defined());
  for (const Tensor& weight : part.late()) EXPECT_FALSE(weight.grad().defined());
}

/// Two members and two parts: member 0 leaves these layers, and member 1 has ended.
void leave_to_both(Crew& crew, const std::deque<LateWork>& layers) {
  const auto pass = [&crew](int64_t member, const std::deque<LateWork>& late) {
    try {
      crew.enter(member);
      crew.leave_late(member, 1, late);
      crew.compute_late(member);
      crew.end_pass(member);
      crew.meet(member, "end", [] { return CrewWork{}; });
      crew.leave(member);
    } catch (const CrewStopped&) {
      return;  // the crew keeps the error
    }
  };
  std::thread other([&] { pass(1, {}); });
  pass(0, layers);
  other.join();
}

TEST(LateWeights, AreComputedByWhoHasEndedToo) {
  Crew crew(2, std::vector<int64_t>{1, 1});
  std::promise<void> second_began;
  std::thread::id by[2];
  std::future_status waited{};
  leave_to_both(crew, {[&] {
                         by[0] = std::this_thread::get_id();
                         waited = second_began.get_future().wait_for(std::chrono::seconds(60));
                       },
                       [&] {
                         by[1] = std::this_thread::get_id();
                         second_began.set_value();
                       }});
  EXPECT_EQ(waited, std::future_status::ready);
  EXPECT_NE(by[0], by[1]);
}

TEST(LateWeights, ThatFailInAnotherThreadAreTheirMembersError) {
  Crew crew(2, std::vector<int64_t>{1, 1});
  const auto owner = std::this_thread::get_id();
  std::promise<void> helped;
  leave_to_both(crew, std::deque<LateWork>(2, [&] {
                  if (std::this_thread::get_id() != owner) {
                    helped.set_value();
                    throw std::runtime_error("no memory");
                  }
                  helped.get_future().wait_for(std::chrono::seconds(60));
                }));
  EXPECT_EQ(crew.failed_member(), 0);
}

}  // namespace
}  // namespace lockstep::parallel
