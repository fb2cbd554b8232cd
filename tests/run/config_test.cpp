// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::run {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Config, WrittenAsTomlIsReadBackEqual) {
  Config config{.model = "re\"s\\net",
                .set = {"width=0.5", "a=b,c"},
                .seed = ~uint64_t{0},
                .lr = 0.1,
                .weight_decay = 5e-4,
                .milestones = {1.5, 30},
                .quiet = true};
  config.data = "zwei\nZeilen";
  Config read;
  const auto given = read_toml(read, to_toml(config), "test");
  EXPECT_EQ(given.size(), fields_of(config).size());
  EXPECT_EQ(to_toml(read), to_toml(config));
  EXPECT_EQ(read.set, config.set);
  EXPECT_EQ(read.seed, config.seed);
  EXPECT_EQ(read.lr, 0.1);
  EXPECT_EQ(read.data, config.data);
  EXPECT_EQ(read.milestones, config.milestones);
  EXPECT_TRUE(read.quiet);
}

TEST(Config, AFileMayHaveCommentsQuotesAndArrays) {
  Config config;
  const auto given = read_toml(config,
                               "# a comment\n\n model = 'mlp' # another\r\nlr=1e-2\n  devices = 2\n"
                               "milestones = [1, 2.5,]\nset = []\nnesterov = true\n",
                               "test");
  EXPECT_THAT(given, ::testing::ElementsAre("model", "lr", "devices", "milestones", "set", "nesterov"));
  EXPECT_EQ(config.model, "mlp");
  EXPECT_EQ(config.lr, 0.01);
  EXPECT_EQ(config.devices, "2");
  EXPECT_EQ(config.milestones, (std::vector<double>{1, 2.5}));
  EXPECT_TRUE(config.nesterov);
}

void expect_refused(const std::string& content, const std::string& message) {
  Config config;
  EXPECT_THAT([&] { read_toml(config, content, "run.toml"); }, ThrowsMessage<Error>(HasSubstr(message))) << content;
}

TEST(Config, AMistakeInAFileIsNamedWithItsLine) {
  expect_refused("epochs = 3\nmomentun = 0.9\n",
                 "run.toml, line 2: unknown option 'momentun' (did you mean 'momentum'?)");
  expect_refused("epochs = 3.5", "run.toml, line 1: epochs is '3.5', expected a whole number");
  expect_refused("seed = -1", "expected a whole number, 0 or more");
  expect_refused("lr = fast", "lr is 'fast', expected a number");
  expect_refused("quiet = yes", "expected true or false");
  expect_refused("lr", "expected = after a name");
  expect_refused("lr = 0.1 0.2", "expected the end of the line");
  expect_refused("model = \"lenet", "expected a closing \"");
  expect_refused("milestones = [1 2]", "expected , or ]");
  expect_refused("lr = [0.1]", "lr is an array, expected one value");
  expect_refused("lr = 1\nlr = 2", "'lr' stands there twice");
  expect_refused("[section]\n", "expected NAME = VALUE");
}

TEST(Config, ChoicesAndRangesAreCheckedWithTheNearestName) {
  const auto refuse = [](const Config& config, const std::string& message) {
    EXPECT_THAT([&] { check(config); }, ThrowsMessage<Error>(HasSubstr(message)));
  };
  check(Config{});
  refuse({.optimizer = "sdg"},
         "optimizer is 'sdg', expected sgd, adam, adamw, rmsprop, adagrad, lars or lamb (did you mean 'sgd'?)");
  refuse({.schedule = "cosin"}, "did you mean 'cosine'?");
  refuse({.batch = -1}, "batch is -1, expected 0 or more");
  refuse({.voxel = 0}, "voxel is 0, expected a length");
  refuse({.lr = -1}, "lr is -1, expected 0 or more");
  refuse({.label_smoothing = 2}, "label-smoothing is 2, expected 0 to 1");
  refuse({.schedule = "multi-step"}, "without milestones");
  refuse({.milestones = {2, 1}}, "not in order");
  refuse({.optimizer = "adam", .momentum = 0.9},
         "momentum is set, and adam has none, expected it with sgd, rmsprop or lars");
  refuse({.optimizer = "lars", .nesterov = true}, "nesterov is set");
  refuse({.beta1 = 0.5}, "beta1 is set, and sgd has none, expected it with adam, adamw or lamb");
  refuse({.epochs = 0}, "epochs and steps are both 0");
  refuse({.eps = 1e-3}, "eps is set, and sgd has none");
  refuse({.schedule = "cosine", .gamma = 0.5},
         "gamma is set, and cosine has none, expected it with step or multi-step");
  refuse({.milestones = {1, 2}}, "milestones is set, and constant has none");
  refuse({.schedule = "step", .power = 2}, "power is set, and step has none");
  refuse({.schedule = "step", .least = 0.1}, "least is set, and step has none, expected it with cosine or polynomial");
  refuse({.decay_every = 2}, "decay-every is set, and constant has none");
  check({.optimizer = "adam", .momentum = 0, .eps = 0});
}

TEST(Config, NumbersBeyondAllSenseAreRefused) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const auto refuse = [](const Config& config, const std::string& message) {
    EXPECT_THAT([&] { check(config); }, ThrowsMessage<Error>(HasSubstr(message)));
  };
  refuse({.schedule = "step", .decay_every = kInf}, "decay-every is inf");
  for (const double epoch : {kInf, kNan, -3.0})
    refuse({.schedule = "multi-step", .milestones = {epoch}}, text("one of milestones is ", epoch, ", expected 0 to"));
  refuse({.voxel = kInf}, "voxel is inf");
  refuse({.epochs = 1'000'000'000'000'000'000}, "epochs is 1e+18, expected 0 to 1e+09");
  refuse({.warmup = 1e10}, "warmup is 1e+10");
  refuse({.workers = int64_t{1} << 32}, "workers is 4.29497e+09, expected -1 to 1024");
}

TEST(Config, AFolderIsNoFileOfOptions) {
  Config config;
  EXPECT_THAT([&] { read_toml_file(config, "/tmp"); }, ThrowsMessage<Error>(HasSubstr("'/tmp' is a folder, expected")));
}

TEST(Config, EveryOptionHasANameAHelpAndItsOwnPlace) {
  Config config;
  std::vector<std::string> names;
  std::vector<const void*> places;
  for (const auto& field : fields_of(config)) {
    names.emplace_back(field.name);
    places.push_back(std::visit([](const auto* value) { return static_cast<const void*>(value); }, field.value));
    EXPECT_GT(std::string(field.help).size(), 10u) << field.name;
  }
  for (auto* list : {&places}) std::sort(list->begin(), list->end());
  EXPECT_EQ(std::unique(places.begin(), places.end()), places.end());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

TEST(Config, APresetFillsOnlyWhatNobodyHasSet) {
  Config config{.batch = 64};
  apply_preset(config, "best", {"batch"});
  EXPECT_EQ(config.batch, 64);
  EXPECT_EQ(config.schedule, "cosine");
  EXPECT_LE(config.epochs, 20);
  check(config);
  Config adam{.optimizer = "adam"};
  apply_preset(adam, "best", {"optimizer"});
  EXPECT_EQ(adam.optimizer, "adam");
  EXPECT_EQ(adam.momentum, -1);
  EXPECT_EQ(adam.lr, 0);  // the optimiser's usual one
  EXPECT_EQ(adam.schedule, "cosine");
  check(adam);
  EXPECT_THAT([&] { apply_preset(config, "bets", {}); }, ThrowsMessage<Error>(HasSubstr("did you mean 'best'?")));
}

TEST(Config, ReplicasByDefaultAreEightOnCpusAndCoverTheGpus) {
  EXPECT_EQ(default_replicas(false, 2, 256), 8);
  EXPECT_EQ(default_replicas(false, 64, 256), 8);
  EXPECT_EQ(default_replicas(false, 2, 5), 4);
  EXPECT_EQ(default_replicas(false, 2, 1), 1);
  EXPECT_EQ(default_replicas(true, 3, 256), 4);
  EXPECT_EQ(default_replicas(true, 1, 256), 1);
  EXPECT_EQ(default_replicas(true, 16, 8), 8);
}

}  // namespace
}  // namespace lockstep::run
