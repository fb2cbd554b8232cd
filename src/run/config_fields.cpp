// SPDX-License-Identifier: Apache-2.0
// The one list of options: the command line, files and checks all read it.
#include "lockstep/run/config.h"

#include "lockstep/data/registry.h"

namespace lockstep::run {
namespace {

constexpr const char* kNetwork = "Network";
constexpr const char* kData = "Data";
constexpr const char* kBatch = "Batch and replicas";
constexpr const char* kOptimizer = "Optimiser";
constexpr const char* kRate = "Learning rate over time";
constexpr const char* kArithmetic = "Arithmetic";
constexpr const char* kPlacement = "Where it runs";
constexpr const char* kOutput = "What it writes";

void add_network(std::vector<Field>& out, Config& c) {
  out.push_back({"model", kNetwork, "The network; 'lockstep train --help' lists them", true, {}, &c.model});
  out.push_back({"set", kNetwork, "Settings of the network, such as width=0.5", true, {}, &c.set});
  out.push_back({"init",
                 kNetwork,
                 "How weights begin: default, d2l, xavier, kaiming, a file of weights, or a run: runs/lenet",
                 true,
                 {},
                 &c.init});
  out.push_back({"seed", kNetwork, "Decides all that is random", true, {}, &c.seed});
}

void add_data(std::vector<Field>& out, Config& c) {
  out.push_back({"data", kData, data::builtin().usages() + ", or a folder", true, {}, &c.data});
  out.push_back(
      {"augment",
       kData,
       "What is done to examples: crop:4,flip,shift:2,erase,normalize; to clouds turn,flip,scale:0.1,move:0.5,"
       "jitter:0.005,drop:0.1,chromatic,elastic:0.4:0.05,window:4,mix",
       true,
       {},
       &c.augment});
  out.push_back({"order", kData, "The order of an epoch", true, {"shuffled", "sequential"}, &c.order});
  out.push_back({"tail", kData, "The last batch of an epoch", true, {"exact", "drop_last", "pad"}, &c.tail});
  out.push_back({"image-size", kData, "Folders of images are scaled to this", true, {}, &c.image_size});
  out.push_back({"voxel", kData, "The side of a voxel of clouds, in metres", true, {}, &c.voxel});
  out.push_back({"examples", kData, "Train on the first so many only", true, {}, &c.examples});
  out.push_back({"test-examples", kData, "Test on the first so many only", true, {}, &c.test_examples});
}

void add_batch(std::vector<Field>& out, Config& c) {
  out.push_back(
      {"batch", kBatch, "Examples of a step, of all replicas together; default: 256, or 8 clouds", true, {}, &c.batch});
  out.push_back({"replicas",
                 kBatch,
                 "R, over which a batch is divided; default: 8 on CPUs, on GPUs a power of two that covers them",
                 true,
                 {},
                 &c.replicas});
  out.push_back({"accumulate", kBatch, "Batches that make one update", true, {}, &c.accumulate});
  out.push_back({"scale-batch", kBatch, "Multiply the batch by the number of devices", true, {}, &c.scale_batch});
  out.push_back({"scale-lr",
                 kBatch,
                 "Let the rate grow with the number of devices",
                 true,
                 {"none", "linear", "sqrt"},
                 &c.scale_lr});
  out.push_back({"epochs", kBatch, "Passes over the data", true, {}, &c.epochs});
  out.push_back({"steps", kBatch, "Stop after so many updates; 0: no such limit", true, {}, &c.steps});
}

void add_optimizer(std::vector<Field>& out, Config& c) {
  out.push_back({"optimizer", kOptimizer, "The update rule", true, parallel::rule_names(), &c.optimizer});
  out.push_back({"lr", kOptimizer, "The learning rate; default: the optimiser's usual one", true, {}, &c.lr});
  out.push_back({"momentum", kOptimizer, "Of sgd, rmsprop and lars; default: 0, of lars 0.9", true, {}, &c.momentum});
  out.push_back({"nesterov", kOptimizer, "Nesterov's momentum, of sgd", true, {}, &c.nesterov});
  out.push_back({"weight-decay", kOptimizer, "Default: the optimiser's usual one", true, {}, &c.weight_decay});
  out.push_back({"beta1", kOptimizer, "Of adam, adamw and lamb", true, {}, &c.beta1});
  out.push_back({"beta2", kOptimizer, "Of adam, adamw and lamb", true, {}, &c.beta2});
  out.push_back({"eps", kOptimizer, "Default: the optimiser's usual one", true, {}, &c.eps});
  out.push_back({"clip", kOptimizer, "Largest norm of the whole gradient; 0: off", true, {}, &c.clip});
  out.push_back({"clip-value", kOptimizer, "Largest element of a gradient; 0: off", true, {}, &c.clip_value});
  out.push_back({"label-smoothing", kOptimizer, "Probability that goes to all classes", true, {}, &c.label_smoothing});
}

void add_rate(std::vector<Field>& out, Config& c) {
  out.push_back({"schedule",
                 kRate,
                 "How the rate changes",
                 true,
                 {"constant", "step", "multi-step", "cosine", "polynomial"},
                 &c.schedule});
  out.push_back({"warmup", kRate, "Epochs in which the rate rises from 0", true, {}, &c.warmup});
  out.push_back({"decay-every", kRate, "Epochs between the drops of 'step'", true, {}, &c.decay_every});
  out.push_back({"gamma", kRate, "Factor of a drop of 'step' and 'multi-step'", true, {}, &c.gamma});
  out.push_back({"milestones", kRate, "Epochs of the drops of 'multi-step'", true, {}, &c.milestones});
  out.push_back({"power", kRate, "Of 'polynomial'", true, {}, &c.power});
  out.push_back({"least", kRate, "Where 'cosine' and 'polynomial' end, as a factor of lr", true, {}, &c.least});
}

void add_arithmetic(std::vector<Field>& out, Config& c) {
  out.push_back({"batch-norm",
                 kArithmetic,
                 "Statistics of batch norms: of all replicas, merged, or each its own",
                 true,
                 {"sync", "ghost", "local"},
                 &c.batch_norm});
  out.push_back({"amp", kArithmetic, "Mixed precision", true, {"none", "bf16", "fp16"}, &c.amp});
  out.push_back({"memory-format",
                 kArithmetic,
                 "How images lie in memory",
                 true,
                 {"auto", "contiguous", "channels-last"},
                 &c.memory_format});
  out.push_back({"reduce",
                 kArithmetic,
                 "Order of additions: canonical keeps the bits, ring may be faster",
                 true,
                 {"canonical", "ring"},
                 &c.reduce});
  out.push_back({"slices",
                 kArithmetic,
                 "S, the parts of each layer's output channels that are computed apart",
                 true,
                 {},
                 &c.slices});
}

void add_run(std::vector<Field>& out, Config& c) {
  out.push_back(
      {"devices", kPlacement, "Of each process: 2, cpu:4, cuda:0; default: all there are", false, {}, &c.devices});
  out.push_back({"blocks",
                 kPlacement,
                 "How many replicas each process runs, such as 3,3,2; default: as even as can be",
                 false,
                 {},
                 &c.blocks});
  out.push_back(
      {"split",
       kPlacement,
       "What devices divide: data, the batch alone; p2, the network too; t2, each layer's slices; p2t2; auto or "
       "auto:2GiB, the fastest",
       false,
       {},
       &c.split});
  out.push_back(
      {"audit",
       kPlacement,
       "Updates between audits: one replica's gradient is computed again on another device and compared; 0: none",
       false,
       {},
       &c.audit});
  out.push_back({"workers",
                 kPlacement,
                 "Threads that read ahead; default: 1, and for a GPU a process's cores, 8 at most",
                 false,
                 {},
                 &c.workers});
  out.push_back({"cache",
                 kPlacement,
                 "Clouds: a folder that keeps each as it was read, for all who name it; default: none",
                 false,
                 {},
                 &c.cache});
  out.push_back(
      {"out", kOutput, "The run's folder; default: runs/MODEL, with a number where that is taken", false, {}, &c.out});
  out.push_back({"resume", kOutput, "Go on with this run (its folder or a checkpoint)", false, {}, &c.resume});
  out.push_back({"save-every",
                 kOutput,
                 "Updates between checkpoints; each epoch ends with one anyway",
                 false,
                 {},
                 &c.save_every});
  out.push_back(
      {"copy-every",
       kOutput,
       "Under lockstep run --survive: updates between copies of the state in memory, from which the others go "
       "on when a process is lost",
       false,
       {},
       &c.copy_every});
  out.push_back(
      {"log-every", kOutput, "Updates between lines of metrics; default: ten an epoch", false, {}, &c.log_every});
  out.push_back(
      {"evaluate-every", kOutput, "Epochs between evaluations; 0: at the end alone", false, {}, &c.evaluate_every});
  out.push_back({"evaluate-batch",
                 kOutput,
                 "Examples evaluated at once, of all replicas; default: 1024, or one cloud a replica",
                 false,
                 {},
                 &c.evaluate_batch});
  out.push_back(
      {"check-data", kOutput, "Prove that an epoch uses each example exactly once", false, {}, &c.check_data});
  out.push_back({"tensorboard", kOutput, "Write TensorBoard's event files", false, {}, &c.tensorboard});
  out.push_back({"curves", kOutput, "Draw curves.svg and curves.png", false, {}, &c.curves});
  out.push_back({"quiet", kOutput, "No progress", false, {}, &c.quiet});
}

}  // namespace

std::vector<Field> fields_of(Config& config) {
  std::vector<Field> out;
  add_network(out, config);
  add_data(out, config);
  add_batch(out, config);
  add_optimizer(out, config);
  add_rate(out, config);
  add_arithmetic(out, config);
  add_run(out, config);
  return out;
}

}  // namespace lockstep::run
