// SPDX-License-Identifier: Apache-2.0
// Dive into Deep Learning 12.5, "Training on Multiple GPUs", function by function: LeNet with plain tensors, its
// parameters copied to every device, a batch split over them, gradients added up. On a CPU a device is a thread.
//   d2l_from_scratch [DATA] [EPOCHS] [DEVICES...]      d2l_from_scratch fashion-mnist 10 cpu:1 cpu:2
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <torch/nn/functional/loss.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/base/allocator.h"
#include "lockstep/context/random_scope.h"
#include "lockstep/data/loader.h"
#include "lockstep/metrics/accuracy.h"
#include "lockstep/models/images/lenet.h"
#include "lockstep/numerics/device.h"
#include "lockstep/numerics/pinned.h"
#include "lockstep/parallel/functional.h"

using at::Tensor;
using lockstep::parallel::Devices;
namespace data = lockstep::data;
namespace metrics = lockstep::metrics;
namespace models = lockstep::models;
namespace parallel = lockstep::parallel;

using Params = std::vector<Tensor>;

std::string names(const Devices& devices) {
  std::string all;
  for (const auto& device : devices) all += (all.empty() ? "" : ", ") + device.to_string();
  return "[" + all + "]";
}

// A loss for each example, as the chapter has it: train_batch adds them up.
Tensor loss(const Tensor& outputs, const Tensor& labels) {
  return torch::nn::functional::cross_entropy(outputs, labels,
                                              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
}

// 12.5.4, data synchronisation: copy the parameters to a device, and add vectors up over all devices.
void show_get_params(const Params& params, const Devices& devices) {
  const Params copies = parallel::get_params(params, devices[0]);
  std::cout << "b1 weight:" << copies[1].view({1, -1})
            << "\nb1 grad: " << (copies[1].grad().defined() ? "some" : "none") << "\n";
}

void show_allreduce(const Devices& devices) {
  Params numbers;
  for (size_t i = 0; i < devices.size(); ++i)
    numbers.push_back(at::ones({1, 2}, devices[i].torch()) * static_cast<double>(i + 1));
  std::cout << "before allreduce:\n";
  for (const Tensor& x : numbers) std::cout << x << "\n";
  parallel::all_reduce(numbers);
  std::cout << "after allreduce:\n";
  for (const Tensor& x : numbers) std::cout << x << "\n";
}

// 12.5.5, distributing data.
void show_split_batch(const Devices& devices) {
  const Tensor batch = at::arange(20).reshape({4, 5});
  std::cout << "input:\n" << batch << "\nload into " << names(devices) << "\noutput:\n";
  for (const Tensor& share : parallel::scatter(batch, devices)) std::cout << share << "\n";
}

// 12.5.6, training.
void train_batch(const Tensor& X, const Tensor& y, std::vector<Params>& device_params, const Devices& devices,
                 double lr) {
  const auto [X_shards, y_shards] = parallel::split_batch(X, y, devices);
  // Each device computes its loss and gradients on a thread of its own.
  std::vector<std::function<void(const Tensor&, const Tensor&)>> replicas;
  std::vector<std::pair<Tensor, Tensor>> shards;
  for (size_t i = 0; i < devices.size(); ++i) {
    replicas.emplace_back([&params = device_params[i]](const Tensor& x, const Tensor& labels) {
      loss(models::lenet(x, params), labels).sum().backward();
    });
    shards.emplace_back(X_shards[i], y_shards[i]);
  }
  parallel::parallel_apply(replicas, shards);
  // Add all gradients up, and hand the sums to every device.
  for (size_t p = 0; p < device_params[0].size(); ++p) {
    std::vector<Tensor> grads;
    for (const Params& params : device_params) grads.push_back(params[p].grad());
    parallel::all_reduce(grads);
  }
  // The same step on each, with the size of the whole batch.
  const at::NoGradGuard no_grad;
  for (Params& params : device_params)
    for (Tensor& param : params) {
      param.sub_(param.grad(), lr / static_cast<double>(X.size(0)));
      param.mutable_grad().reset();
    }
}

using DatasetPtr = std::shared_ptr<const data::Dataset>;

double evaluate_accuracy(const DatasetPtr& test, const Params& params) {
  const at::NoGradGuard no_grad;
  metrics::Accuracy accuracy;
  data::Loader loader(test, data::Order::sequential(test->size()), {.batch = 1024});
  for (const data::Batch& batch : loader.share()) accuracy.add(models::lenet(batch.inputs, params), batch.targets);
  return accuracy.value();
}

void train(const std::string& name, const Params& params, const Devices& devices, int epochs, int64_t batch_size,
           double lr) {
  const auto train_set = data::open_dataset(name, data::Subset::train);
  const auto test_set = data::open_dataset(name, data::Subset::test);
  data::Loader train_iter(train_set, data::Order::shuffled(train_set->size(), 0), {.batch = batch_size});
  std::vector<Params> device_params;
  for (const auto& device : devices) device_params.push_back(parallel::get_params(params, device));
  double seconds = 0, accuracy = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    for (const data::Batch& batch : train_iter.share())
      train_batch(batch.inputs, batch.targets, device_params, devices, lr);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    accuracy = evaluate_accuracy(test_set, device_params[0]);
    std::printf("epoch %d: test acc %.3f\n", epoch, accuracy);
  }
  std::printf("test acc: %.2f, %.1f sec/epoch on %s\n", accuracy, seconds / epochs, names(devices).c_str());
}

int main(int argc, char** argv) {
  lockstep::pin_numerics();
  lockstep::tune_allocator();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string dataset = !arguments.empty() ? arguments[0] : "fashion-mnist";
  const int epochs = arguments.size() > 1 ? std::stoi(arguments[1]) : 10;
  std::vector<std::string> placements{"cpu:1", "cpu:2"};
  if (arguments.size() > 2) placements.assign(arguments.begin() + 2, arguments.end());

  // 12.5.3, a toy network: its parameters, drawn from a key, so that every run begins alike.
  const lockstep::RandomScope scope(lockstep::RandomKey{0});
  const Params params = models::lenet_parameters();

  const Devices two = lockstep::parse_devices("cpu:2");
  show_get_params(params, two);
  show_allreduce(two);
  show_split_batch(two);
  for (const std::string& placement : placements)
    train(dataset, params, lockstep::parse_devices(placement), epochs, 256, 0.2);
}
