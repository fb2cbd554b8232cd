// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/loader.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cfenv>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "lockstep/data/ledger.h"
#include "support/files.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

constexpr int64_t kExamples = 103;

std::shared_ptr<const Dataset> images() {
  return make_dataset("images", at::arange(kExamples * 12).remainder(251).to(at::kByte).view({kExamples, 3, 2, 2}),
                      at::arange(kExamples).remainder(10));
}

Loader make_loader(const LoaderOptions& options, std::shared_ptr<const Dataset> dataset = images()) {
  const int64_t size = dataset->size();
  return {std::move(dataset), Order::shuffled(size, 5), options};
}

/// All that a batch holds, as text that two runs can compare.
std::string content(const Batch& batch) {
  std::string bytes = text(batch.at.epoch, '/', batch.at.step, ' ', batch.count, ' ', batch.global_count, ' ');
  const auto append = [&](const at::Tensor& tensor) {
    const at::Tensor dense = tensor.contiguous();
    bytes.append(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  };
  append(batch.ids);
  append(batch.inputs);
  append(batch.targets);
  return bytes;
}

using Contents = std::map<std::pair<int64_t, int64_t>, std::string>;  // (replica, number of the batch)

/// Every share of these replicas, each taken by a thread of its own or all in turn.
void take(Loader& loader, Interval block, int64_t batches, bool threads, Contents& into) {
  std::mutex mutex;
  const auto one = [&](int64_t replica, int64_t number) {
    std::string got = content(loader.next(replica));
    const std::lock_guard lock(mutex);
    into[{replica, number}] = std::move(got);
  };
  if (!threads) {
    for (int64_t number = 0; number < batches; ++number)
      for (int64_t replica = block.begin; replica < block.end; ++replica) one(replica, number);
    return;
  }
  std::vector<std::thread> running;
  for (int64_t replica = block.begin; replica < block.end; ++replica)
    running.emplace_back([&, replica] {
      for (int64_t number = 0; number < batches; ++number) one(replica, number);
    });
  for (std::thread& thread : running) thread.join();
}

TEST(Loader, EveryPlacementThreadAndPrefetchGivesEachReplicaTheSameBatches) {
  LoaderOptions options{
      .batch = 20, .replicas = 8, .transforms = Transforms::parse("crop:1,flip,normalize"), .seed = 3};
  options.workers = 0;
  Contents expected;
  Loader alone = make_loader(options);
  take(alone, {0, 8}, 13, false, expected);
  for (const std::vector<int64_t>& counts : {std::vector<int64_t>{8}, {3, 3, 2}, {0, 8}, {1, 7}})
    for (const int workers : {0, 1, 3})
      for (const int64_t prefetch : {0, 1, 4})
        for (const bool threads : {false, true}) {
          Contents got;
          const Placement placement(counts);
          for (int64_t process = 0; process < placement.processes(); ++process) {
            options.block = placement.block(process);
            options.workers = workers;
            options.prefetch = prefetch;
            Loader loader = make_loader(options);
            take(loader, *options.block, 13, threads, got);
          }
          ASSERT_EQ(got, expected) << counts.size() << " processes, " << workers << " workers, " << prefetch;
        }
}

TEST(Loader, SharesOfABatchFollowEachOtherInTheOrderAndDifferByAtMostOne) {
  Loader loader = make_loader({.batch = 20, .replicas = 8});
  const Order order = Order::shuffled(kExamples, 5);
  int64_t position = 0;
  for (int64_t step = 0; step < loader.batches_per_epoch(); ++step) {
    const Placement shares = Placement::even(loader.batch_size(step), 8);
    for (int64_t replica = 0; replica < 8; ++replica) {
      const Batch batch = loader.next(replica);
      ASSERT_EQ(batch.count, shares.block(replica).size());
      ASSERT_EQ(batch.ids.size(0), batch.count);
      for (int64_t row = 0; row < batch.count; ++row) {
        const int64_t id = order(0, position++);
        ASSERT_EQ(batch.ids[row].item<int64_t>(), id);
        ASSERT_EQ(batch.targets[row].item<int64_t>(), id % 10);
        ASSERT_EQ(batch.inputs[row][0][0][0].item<float>(), static_cast<float>(id * 12 % 251) / 255.0f);
      }
    }
  }
  EXPECT_EQ(position, kExamples);
}

TEST(Loader, ExactTailsUseEveryExampleOnceAndMayLeaveReplicasWithNone) {
  Loader loader = make_loader({.batch = 20, .replicas = 8});
  Ledger ledger(kExamples);
  for (int64_t replica = 0; replica < 8; ++replica)
    for (const Batch& batch : loader.share(replica)) ledger.add(batch);
  EXPECT_EQ(ledger.report().to_string(), "103 of 103 examples were used, each once");
  Loader again = make_loader({.batch = 20, .replicas = 8, .block = Interval{7, 8}});
  std::vector<int64_t> counts;
  for (const Batch& batch : again.share(7)) {
    counts.push_back(batch.count);
    EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{batch.count, 3, 2, 2}));
  }
  EXPECT_THAT(counts, testing::ElementsAre(2, 2, 2, 2, 2, 0)) << "3 examples are left for 8 replicas";
}

TEST(Loader, DropLastLeavesTheTailOut) {
  Loader loader = make_loader({.batch = 20, .replicas = 2, .tail = Tail::drop_last});
  EXPECT_EQ(loader.batches_per_epoch(), 5);
  for (const Batch& batch : loader.share(1)) EXPECT_EQ(batch.count, 10);
  EXPECT_EQ(loader.next(1).at, (BatchCursor{1, 0}));
}

TEST(Loader, PaddedRowsDontCountAndSharesKeepTheirSize) {
  Loader loader = make_loader({.batch = 20, .replicas = 8, .tail = Tail::pad});
  Loader exact = make_loader({.batch = 20, .replicas = 8});
  for (int64_t replica = 0; replica < 8; ++replica) {
    for (int64_t step = 0; step < 6; ++step) {
      const Batch batch = loader.next(replica), expected = exact.next(replica);
      const int64_t rows = Placement::even(20, 8).block(replica).size();
      ASSERT_EQ(batch.ids.size(0), rows);
      ASSERT_EQ(batch.count, expected.count);
      ASSERT_TRUE(batch.inputs.narrow(0, 0, batch.count).equal(expected.inputs));
      for (int64_t row = batch.count; row < rows; ++row) {
        EXPECT_EQ(batch.ids[row].item<int64_t>(), -1);
        EXPECT_EQ(batch.targets[row].item<int64_t>(), -100);
        const at::Tensor repeated = batch.count > 0 ? batch.inputs[row % batch.count] : at::zeros({3, 2, 2});
        EXPECT_TRUE(batch.inputs[row].equal(repeated));
      }
    }
  }
}

TEST(Loader, ACursorGoesOnInAnyPlacement) {
  LoaderOptions options{.batch = 10, .replicas = 4, .transforms = Transforms::parse("flip"), .seed = 1};
  Contents whole, resumed;
  Loader uninterrupted = make_loader(options);
  take(uninterrupted, {0, 4}, 25, false, whole);
  Loader first = make_loader(options);
  take(first, {0, 4}, 14, true, resumed);
  const BatchCursor cursor = first.cursor(3);
  EXPECT_EQ(cursor, (BatchCursor{1, 3}));
  Contents rest;
  for (const Interval block : {Interval{0, 1}, Interval{1, 4}}) {
    options.block = block;
    Loader loader = make_loader(options);
    loader.next(block.begin);  // whatever was done with it before
    loader.seek(cursor);
    take(loader, block, 11, true, rest);
  }
  for (auto& [place, bytes] : rest) resumed[{place.first, place.second + 14}] = bytes;
  EXPECT_EQ(resumed, whole);
}

TEST(Loader, EpochsFollowEachOtherAndBatchesSayWhereTheyLie) {
  Loader loader = make_loader({.batch = 50});
  std::vector<std::pair<int64_t, int64_t>> places;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const Batch& batch : loader.share()) {
      places.emplace_back(batch.at.epoch, batch.at.step);
      EXPECT_EQ(batch.last_of_epoch(), batch.at.step == 2);
      EXPECT_EQ(batch.global_count, batch.at.step == 2 ? 3 : 50);
    }
  EXPECT_THAT(places, testing::ElementsAre(testing::Pair(0, 0), testing::Pair(0, 1), testing::Pair(0, 2),
                                           testing::Pair(1, 0), testing::Pair(1, 1), testing::Pair(1, 2)));
  loader.seek({3, 2});
  for (const Batch& batch : loader.share()) EXPECT_EQ(batch.at, (BatchCursor{3, 2}));
  EXPECT_EQ(loader.cursor(), (BatchCursor{4, 0}));
}

TEST(Loader, AReplicaMayRunFarAheadOfTheOthers) {
  Loader loader = make_loader({.batch = 20, .replicas = 4, .workers = 1, .prefetch = 2});
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(loader.next(2).at.step, i % 6);
  EXPECT_EQ(loader.next(0).at, (BatchCursor{0, 0}));
}

TEST(Loader, BuffersAreAlignedAndUsedAgainButNeverWhileSomebodyHoldsThem) {
  Loader loader = make_loader({.batch = 20, .replicas = 2});
  std::set<const void*> places;
  for (int64_t i = 0; i < 60; ++i) {
    const Batch batch = loader.next(0);
    places.insert(batch.inputs.const_data_ptr());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.inputs.const_data_ptr()) % 64, 0u);
  }
  EXPECT_LT(places.size(), 15u);
  std::vector<at::Tensor> views;
  std::vector<std::string> before;
  for (int64_t i = 0; i < 30; ++i) {
    const Batch batch = loader.next(0);
    views.push_back(batch.inputs.narrow(0, 0, 1));  // a view alone keeps the memory
    before.push_back(text(batch.inputs[0].sum().item<float>()));
  }
  for (size_t i = 0; i < views.size(); ++i) EXPECT_EQ(text(views[i].sum().item<float>()), before[i]) << i;
}

TEST(Loader, BuffersThatWereReadInInferenceModeServeTraining) {
  Loader loader = make_loader({.batch = 20, .workers = 0});
  {
    const c10::InferenceMode mode;
    loader.next();
  }
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(loader.next().inputs.is_inference());
  loader.next().inputs.requires_grad_();
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(loader.next().inputs.requires_grad());
}

TEST(Loader, BuffersWhoseShapeOrTypeAConsumerChangedInPlaceAreNotUsedAgain) {
  const auto dataset =
      make_dataset("own", at::arange(256, at::kFloat).view({64, 1, 2, 2}), at::zeros({64, 1}, at::kLong), 2);
  const std::vector<std::function<void(const Batch&)>> changes{
      [](const Batch& batch) { batch.inputs.squeeze_(1), batch.targets.squeeze_(1), batch.ids.unsqueeze_(0); },
      [](const Batch& batch) { batch.inputs.transpose_(2, 3); }, [](const Batch& batch) { batch.inputs.resize_({1}); },
      [](const Batch& batch) { batch.inputs.set_data(batch.inputs.to(at::kDouble)); },
      [](const Batch& batch) { batch.targets.set_data(batch.targets.to(at::kInt)); }};
  for (size_t change = 0; change < changes.size(); ++change) {
    Loader loader(dataset, Order::sequential(64), {.batch = 4, .workers = 0});
    for (int64_t step = 0; step < 12; ++step) {
      const Batch batch = loader.next();
      ASSERT_TRUE(batch.inputs.equal(at::arange(16 * step, 16 * step + 16, at::kFloat).view({4, 1, 2, 2}))) << change;
      ASSERT_TRUE(batch.targets.equal(at::zeros({4, 1}, at::kLong))) << change;
      ASSERT_TRUE(batch.ids.equal(at::arange(4 * step, 4 * step + 4))) << change;
      changes[change](batch);
    }
  }
}

TEST(Loader, ChannelsLastHoldsTheSameValues) {
  Loader planar = make_loader({.batch = 7});
  Loader last = make_loader({.batch = 7, .layout = Layout::channels_last});
  for (int i = 0; i < 20; ++i) {
    const Batch a = planar.next(), b = last.next();
    EXPECT_TRUE(b.inputs.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(a.inputs.equal(b.inputs));
  }
}

/// Fails to read one example until it is mended.
class Broken : public Dataset {
 public:
  Broken() : Dataset({.name = "broken", .size = 40, .input_shape = {1}, .classes = 1}) {}
  Normalization normalization() const override { return {{0}, {1}}; }
  std::atomic<bool> mended = false;

 protected:
  void read_inputs(std::span<const int64_t> ids, Layout, Affine, float* inputs) const override {
    for (const int64_t id : ids) {
      require(id != 33 || mended, "Broken", "example 33 is broken");
      *inputs++ = static_cast<float>(id);
    }
  }
  void fetch_targets(std::span<const int64_t> ids, int64_t* targets) const override {
    std::fill_n(targets, ids.size(), 0);
  }
};

TEST(Loader, WhatReadingThrowsReachesTheReplicaThatWantedIt) {
  const auto dataset = std::make_shared<Broken>();
  for (const int workers : {0, 1}) {
    dataset->mended = false;
    Loader loader(dataset, Order::sequential(40), {.batch = 10, .replicas = 2, .workers = workers});
    for (int64_t step = 0; step < 4; ++step) EXPECT_EQ(loader.next(1).count, 5);
    for (int64_t step = 0; step < 3; ++step) loader.next(0);
    for (int i = 0; i < 2; ++i)
      EXPECT_THAT(error_of([&] { loader.next(0); }), HasSubstr("example 33 is broken")) << "again at the next call";
    EXPECT_EQ(loader.next(1).at, (BatchCursor{1, 0})) << "the other replica goes on";
    dataset->mended = true;
    loader.seek({0, 3});
    EXPECT_EQ(loader.next(0).inputs[3].item<float>(), 33);
  }
}

TEST(Loader, WithoutInputsBatchesAreTheSameElse) {
  const auto broken = std::make_shared<Broken>();  // which nobody notices here
  for (const auto& dataset : {images(), std::static_pointer_cast<const Dataset>(broken)}) {
    broken->mended = true;
    LoaderOptions options{.batch = 10, .replicas = 3, .tail = Tail::pad};
    Loader whole = make_loader(options, dataset);
    options.inputs = false;
    Loader without = make_loader(options, dataset);
    std::vector<Batch> wanted;
    for (int i = 0; i < 12; ++i) wanted.push_back(whole.next(i % 3));
    broken->mended = false;
    for (int i = 0; i < 12; ++i) {
      const Batch batch = without.next(i % 3);
      EXPECT_TRUE(batch.ids.equal(wanted[i].ids));
      EXPECT_TRUE(batch.targets.equal(wanted[i].targets));
      EXPECT_EQ(batch.weight, wanted[i].weight);
      EXPECT_EQ(batch.inputs.sizes(), wanted[i].inputs.sizes());
      EXPECT_EQ(batch.inputs.count_nonzero().item<int64_t>(), 0);
    }
  }
}

TEST(Loader, BytesBecomeTheSameFloatsWhereTheyAreWanted) {
  const char* const texts[] = {"none", "normalize:0.3:0.7:0.2:0.9:0.4:0.6", "crop:1,flip,erase:0.5,shift:1",
                               "crop:1,erase:0.5,normalize:0.3:0.7:0.2:0.9:0.4:0.6,flip,shift:1"};
  const auto expect_same = [](const std::shared_ptr<const Dataset>& dataset, LoaderOptions options, bool bytes) {
    Loader floats = make_loader(options, dataset);
    options.bytes = true;
    Loader kept = make_loader(options, dataset);
    for (int i = 0; i < 30; ++i) {
      const Batch wanted = floats.next(i % 3), batch = kept.next(i % 3);
      const at::Tensor got = batch.inputs_on(at::kCPU);
      EXPECT_EQ(batch.inputs.scalar_type(), bytes ? at::kByte : at::kFloat);
      EXPECT_TRUE(got.equal(wanted.inputs)) << options.transforms.to_string();
      EXPECT_EQ(got.strides(), wanted.inputs.strides());
      EXPECT_EQ(wanted.inputs_on(at::kCPU).const_data_ptr(), wanted.inputs.const_data_ptr());
      EXPECT_TRUE(batch.targets.equal(wanted.targets));
    }
  };
  LoaderOptions options{.batch = 10, .replicas = 3, .tail = Tail::pad, .seed = 4};
  for (const Layout layout : {Layout::contiguous, Layout::channels_last})
    for (const char* text : texts) {
      options.layout = layout;
      options.transforms = Transforms::parse(text);
      expect_same(images(), options, true);
      expect_same(first_of(images(), 40), options, true);
    }
  // Black would be 0 after it was normalised, and a function of the user's takes floats.
  options.transforms = Transforms::parse("normalize:0.3:0.7:0.2:0.9:0.4:0.6,crop:1");
  expect_same(images(), options, false);
  options.transforms = Transforms({Custom{"half", [](std::span<float> values, auto&&...) { values[0] /= 2; }}});
  expect_same(images(), options, false);
  options.transforms = Transforms::parse("normalize:0.3:0.7");
  expect_same(make_dataset("flat", at::arange(250).to(at::kByte).view({50, 5}), at::arange(50)), options, true);
  expect_same(make_dataset("floats", at::arange(200, at::kFloat).view({50, 4}), at::arange(50)), options, false);
}

TEST(Loader, WaitingIsMeasured) {
  Loader loader = make_loader({.batch = 20, .replicas = 2, .workers = 0});
  double waited = 0;
  for (int i = 0; i < 5; ++i) waited += loader.next(1).waited_seconds;
  const LoaderStats stats = loader.stats();
  EXPECT_EQ(stats.batches, 5);
  EXPECT_EQ(stats.late, 5) << "nobody reads ahead";
  EXPECT_GT(stats.waited_seconds, 0);
  EXPECT_DOUBLE_EQ(stats.waited_seconds, waited);
  loader.reset_stats();
  EXPECT_EQ(loader.stats().batches, 0);
}

TEST(Loader, AReadersFloatingPointModeChangesNothing) {
  const auto tiny =
      make_dataset("tiny", at::arange(1, 41, at::kFloat).mul_(1e-42).view({20, 2}), at::zeros({20}, at::kLong));
  const LoaderOptions options{.batch = 20, .transforms = Transforms::parse("normalize:0:0.5"), .workers = 0};
  Loader standard(tiny, Order::sequential(20), options), upwards(tiny, Order::sequential(20), options);
  const std::string expected = content(standard.next());
  std::fesetround(FE_UPWARD);
  const std::string got = content(upwards.next());
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(got, expected);
}

TEST(Loader, MistakesAreErrorsThatSayWhatWasGot) {
  const auto message = [](LoaderOptions options) { return error_of([&] { make_loader(options); }); };
  EXPECT_THAT(message({.batch = 0}), HasSubstr("batch is 0"));
  EXPECT_THAT(message({.replicas = 0}), HasSubstr("replicas is 0"));
  EXPECT_THAT(message({.replicas = 4, .block = Interval{2, 5}}),
              HasSubstr("the block is [2, 5), expected a part of [0, 4)"));
  EXPECT_THAT(message({.batch = 104, .tail = Tail::drop_last}), HasSubstr("no full batch of 104"));
  EXPECT_THAT(message({.workers = -1}), HasSubstr("workers is -1"));
  EXPECT_THAT(message({.prefetch = -1}), HasSubstr("prefetch is -1"));
  EXPECT_THAT(error_of([] { Loader(images(), Order::sequential(5)); }), HasSubstr("for 5 examples, expected 103"));
  Loader loader = make_loader({.replicas = 4, .block = Interval{1, 3}});
  EXPECT_THAT(error_of([&] { loader.next(0); }), HasSubstr("replica 0, expected one of [1, 3)"));
  EXPECT_THAT(error_of([&] { loader.seek({0, 1}); }), HasSubstr("a step in [0, 1)"));
  for (const Tail tail : {Tail::exact, Tail::drop_last, Tail::pad}) EXPECT_EQ(parse_tail(to_string(tail)), tail);
  EXPECT_THAT(error_of([] { parse_tail("some"); }), HasSubstr("expected exact, drop_last or pad"));
}

}  // namespace
}  // namespace lockstep::data
