// SPDX-License-Identifier: Apache-2.0
// Allocators compared on a training step: forward and backward of LeNet on batches of 28 x 28 images.
//
// An allocator is chosen when a process starts, so every figure is a process of its own. The variants take turns,
// round after round, so that what else the machine does meets all of them alike.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <time.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/allocator.h"
#include "lockstep/base/detail/median.h"
#include "lockstep/base/error.h"
#include "support/peer.h"
#include "support/program.h"

namespace lockstep {
namespace {

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::vector<at::Tensor> lenet_parameters() {
  std::vector<at::Tensor> parameters;
  const std::vector<std::vector<int64_t>> shapes{{6, 1, 5, 5}, {6},       {16, 6, 5, 5}, {16},     {120, 400},
                                                 {120},        {84, 120}, {84},          {10, 84}, {10}};
  for (const auto& sizes : shapes) parameters.push_back(at::randn(sizes).mul_(0.1).requires_grad_());
  return parameters;
}

void step(const std::vector<at::Tensor>& p, const at::Tensor& images, const at::Tensor& labels) {
  at::Tensor x = at::avg_pool2d(at::relu(at::conv2d(images, p[0], p[1], 1, 2)), 2, 2);
  x = at::avg_pool2d(at::relu(at::conv2d(x, p[2], p[3])), 2, 2).flatten(1);
  x = at::relu(at::linear(x, p[4], p[5]));
  x = at::relu(at::linear(x, p[6], p[7]));
  at::cross_entropy_loss(at::linear(x, p[8], p[9]), labels).backward();
}

// What a child process measures.
struct Load {
  int64_t batch;
  bool varying;  // every step takes between a quarter of the batch and all of it, as point clouds do
  int threads;
  int steps;
};

struct Steps {
  std::vector<double> milliseconds;  // of processor time: what other programs do at the same time counts little
  long page_faults = 0;
};

long page_faults_of_this_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// One replica's steps, after some that warm up.
Steps train(const Load& load) {
  constexpr int warm_up = 4;
  const auto parameters = lenet_parameters();
  const at::Tensor images = at::randn({load.batch, 1, 28, 28}), labels = at::randint(10, {load.batch});
  Steps steps;
  long faults_before = 0;
  for (int i = -warm_up; i < load.steps; ++i) {
    if (i == 0) faults_before = page_faults_of_this_thread();
    const int64_t least = load.batch / 4;
    const int64_t count = load.varying ? least + (i + warm_up) * 7919 % (load.batch - least + 1) : load.batch;
    const double begin = seconds(CLOCK_THREAD_CPUTIME_ID);
    step(parameters, images.narrow(0, 0, count), labels.narrow(0, 0, count));
    if (i >= 0) steps.milliseconds.push_back((seconds(CLOCK_THREAD_CPUTIME_ID) - begin) * 1e3);
  }
  steps.page_faults = page_faults_of_this_thread() - faults_before;
  return steps;
}

// Reads a number of steps and answers with the median of one in milliseconds and its page faults.
void serve(const std::vector<std::string>& words) {
  Load load{std::stoll(words.at(0)), words.at(1) == "1", std::stoi(words.at(2)), 0};
  if (!(std::cin >> load.steps)) return;
  tune_allocator();
  at::set_num_threads(1);
  std::vector<Steps> replicas(static_cast<size_t>(load.threads));
  {
    std::vector<std::jthread> threads;
    for (Steps& own : replicas)
      threads.emplace_back([&own, &load] {
        at::set_num_threads(1);
        own = train(load);
      });
  }
  std::vector<double> milliseconds;
  double faults = 0;
  for (const Steps& own : replicas) {
    milliseconds.insert(milliseconds.end(), own.milliseconds.begin(), own.milliseconds.end());
    faults += static_cast<double>(own.page_faults);
  }
  std::cout << median(milliseconds) << " " << faults / load.steps / load.threads << "\n" << std::flush;
  std::cin >> load.steps;  // waits, so that its peak memory can be asked for
}

struct Variant {
  std::string name;
  std::string environment;
  std::vector<double> milliseconds{}, mebibytes{}, faults{};
};

std::vector<Variant> variants() {
  std::vector<Variant> result{{"glibc as it comes", "LOCKSTEP_MALLOC=system"},
                              {"glibc tuned", "LOCKSTEP_MALLOC=tuned"}};
  for (const char* library : {"libmimalloc.so.2", "libjemalloc.so.2"})
    if (dlopen(library, RTLD_LAZY | RTLD_LOCAL) != nullptr) result.push_back({library, text("LD_PRELOAD=", library)});
  return result;
}

void measure(Variant& variant, const Load& load) {
  bench::Peer child({text("env ", variant.environment, " ", bench::serve_command(), load.batch, " ", load.varying, " ",
                          load.threads)});
  variant.milliseconds.push_back(child.run(load.steps));
  variant.mebibytes.push_back(child.peak_mib());
  variant.faults.push_back(child.answer().at(1));
}

void compare(const Load& load, int rounds, nlohmann::json& results) {
  std::vector<Variant> all = variants();
  for (int round = 0; round < rounds; ++round)
    for (Variant& variant : all) measure(variant, load);
  const std::string title = text("batch ", load.varying ? text(load.batch / 4, " to ") : "", load.batch, ", ",
                                 load.threads, load.threads == 1 ? " thread" : " threads");
  std::printf("%s\n", title.c_str());
  const double base = median(all[0].milliseconds);
  for (const Variant& variant : all) {
    const double milliseconds = median(variant.milliseconds), mebibytes = median(variant.mebibytes);
    std::printf("  %-18s %8.1f ms a step, x%.2f, %8.0f page faults a step, peak %5.0f MiB\n", variant.name.c_str(),
                milliseconds, base / milliseconds, median(variant.faults), mebibytes);
    results.push_back({{"load", title},
                       {"allocator", variant.name},
                       {"cpu_ms_per_step", milliseconds},
                       {"speedup", base / milliseconds},
                       {"page_faults_per_step", median(variant.faults)},
                       {"peak_mib", mebibytes}});
  }
  std::fflush(stdout);
}

nlohmann::json compare_all(const bench::Arguments&) {
  nlohmann::json results = nlohmann::json::array();
  constexpr int rounds = 3;
  for (const Load& load : {Load{256, false, 1, 12}, Load{1024, false, 1, 4}, Load{256, false, 2, 12},
                           Load{1024, false, 2, 4}, Load{1024, true, 1, 12}})
    compare(load, rounds, results);
  return results;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::bench::run_program(argc, argv,
                                      {.measures = "Allocators compared on training steps of LeNet.",
                                       .measure = lockstep::compare_all,
                                       .serve = lockstep::serve});
}
