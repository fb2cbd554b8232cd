// SPDX-License-Identifier: Apache-2.0
// Each call that writes a run's files, or a cache of scenes, fails once, in every way that it can. Afterwards the run
// goes on to the same weights.
//
// LOCKSTEP_CRASHES=all tries every fault at every call; without it each call meets one after the other in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <filesystem>

#include "crashes/experiment.h"
#include "lockstep/base/detail/sha256.h"
#include "lockstep/base/log.h"
#include "lockstep/data/cloud.h"
#include "lockstep/data/loader.h"
#include "lockstep/run/run_files.h"
#include "lockstep/run/weights.h"
#include "lockstep/train/trainer.h"
#include "support/temporary_folder.h"

namespace lockstep::crashes {
namespace {

using test::TemporaryFolder;

struct NetImpl : torch::nn::Module {
  NetImpl() { fc = register_module("fc", torch::nn::Linear(16, 3)); }
  at::Tensor forward(const at::Tensor& x) { return fc(x.flatten(1)); }
  torch::nn::Linear fc{nullptr};
};

train::Task task() {
  return {.model = "net",
          .network = [] { return models::Classifier::of(std::make_shared<NetImpl>()); },
          .train = data::open_dataset("synthetic:1x4x4:3:24", data::Subset::train),
          .test = data::open_dataset("synthetic:1x4x4:3:12", data::Subset::test)};
}

run::Config config(const std::string& out) {
  run::Config config{.batch = 8, .replicas = 2, .epochs = 2, .lr = 0.05, .momentum = 0.9};
  config.out = out;
  config.devices = "cpu:1";
  config.log_every = 1;
  config.save_every = 2;
  config.workers = 0;
  config.quiet = true;
  return config;
}

// As `lockstep train --out FOLDER --resume` does: from the newest checkpoint, or from the start where there is none.
std::string train_on(const std::string& out) {
  set_log_level(LogLevel::error);
  run::Config wanted = config(out);
  const run::Folder files{out};
  bool has_begun = false;
  for (const auto& file : {files.checkpoint(), files.previous_checkpoint(), files.weights()})
    has_begun |= std::filesystem::exists(file);
  if (has_begun) wanted.resume = out;
  train::Trainer trainer(wanted, task());
  if (!has_begun) trainer.overwrite();
  return trainer.run().hash;
}

// What is wrong after a fault and a second run; empty where nothing is.
std::string complaint(const Ended& first, const Ended& second, const std::string& expected) {
  if (!first.strange.empty()) return "with the fault " + first.strange;
  if (!first.result.empty() && first.result != expected) return "with the fault it came to another result";
  if (first.error.find('\n') != std::string::npos) return "the fault is told in more than a line: " + first.error;
  if (!second.strange.empty()) return "afterwards " + second.strange;
  if (!second.error.empty())
    return "afterwards: " + second.error + (first.error.empty() ? "" : " (first: " + first.error + ")");
  if (second.result != expected) return "afterwards it came to another result";
  return {};
}

// All faults at all calls, or as many as there are calls.
void try_faults(const std::function<std::string(const std::string&)>& work,
                const std::function<std::string(const std::string&)>& check_files) {
  const char* const wish = std::getenv("LOCKSTEP_CRASHES");
  const bool all = wish != nullptr && std::string(wish) == "all";
  const TemporaryFolder reference;
  const std::string whole = reference.file("run");
  const Ended undisturbed = run_apart(whole, -1, Fault::none, [&] { return work(whole); });
  ASSERT_EQ(undisturbed.error + undisturbed.strange, "");
  ASSERT_GT(undisturbed.calls, 3);
  int killed = 0, failed = 0, went_on = 0;
  for (int64_t number = 0; number < undisturbed.calls; ++number)
    for (const Fault fault : all_faults) {
      if (!all && static_cast<int64_t>(fault) != 1 + number % std::ssize(all_faults)) continue;
      const TemporaryFolder folder;
      const std::string out = folder.file("run");
      const Ended first = run_apart(out, number, fault, [&] { return work(out); });
      const Ended second = run_apart(out, -1, Fault::none, [&] {
        const std::string result = work(out);
        const std::string wrong = check_files(out);
        return wrong.empty() ? result : throw std::runtime_error(wrong);
      });
      EXPECT_EQ(complaint(first, second, undisturbed.result), "")
          << to_string(fault) << " at call " << number << " (" << first.met << ")";
      (first.was_killed ? killed : first.error.empty() ? went_on : failed) += 1;
    }
  std::printf("%lld calls: %d times killed, %d times ended by an error, %d times gone on\n",
              static_cast<long long>(undisturbed.calls), killed, failed, went_on);
  EXPECT_GT(killed, 0);
  EXPECT_GT(failed + went_on, 0);
}

std::string check_run(const std::string& out) {
  const run::RunData run = run::read_run(out);
  if (!run.summary || run.summary->state != "finished") return "the summary does not say that it has finished";
  if (run.summary->hash != run::hash_of(run::read_weights(run::Folder{out}.weights())))
    return "weights.pt is not what the summary says";
  int64_t last = 0;
  for (const run::Metrics& line : run.metrics) {
    if (line.step.value_or(0) < last) return "the steps of metrics.jsonl are out of order";
    last = line.step.value_or(0);
  }
  return last == 6 ? "" : "metrics.jsonl does not end with the last step";
}

TEST(Crashes, ARunGoesOnAfterAnyFaultOfItsFiles) {
  try_faults(train_on, check_run);
}

std::string read_clouds(const std::string& cache) {
  set_log_level(LogLevel::error);
  const auto rooms = data::open_dataset("rooms:3:3", data::Subset::train, {.seed = 3, .voxel = 0.5});
  data::Loader loader(rooms, data::Order::sequential(3), {.batch = 3, .workers = 0, .cache = cache});
  const data::Batch batch = loader.next();
  Sha256 hash;
  for (const at::Tensor& tensor : {batch.coordinates, batch.inputs, batch.targets}) {
    const at::Tensor flat = tensor.contiguous();
    hash.update(flat.const_data_ptr(), flat.nbytes());
  }
  return hash.hex();
}

TEST(Crashes, ACacheOfScenesIsWholeAfterAnyFault) {
  try_faults(read_clouds, [](const std::string& cache) { return read_clouds(cache).empty() ? "no batch" : ""; });
}

}  // namespace
}  // namespace lockstep::crashes
