// SPDX-License-Identifier: Apache-2.0
// Commands that read a trained network: evaluate, predict, hash, convert.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/comm/connect.h"
#include "lockstep/pictures/png.h"
#include "lockstep/run/checkpoint.h"
#include "lockstep/run/config.h"
#include "lockstep/run/weights.h"
#include "support/temporary_folder.h"

namespace lockstep::cli {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(WeightsAlone, DecideTheStemAndTheNumberOfClasses) {
  const TemporaryFolder folder;
  const Ended trained =
      run_program({"train", "resnet18", "--set", "width=0.125,stem=imagenet", "--data", "synthetic:3x32x32:7:16",
                   "--batch", "8", "--replicas", "2", "--steps", "1", "--no-curves", "--out", folder.file("run")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto evaluate = [&](const std::string& data) {
    return run_program(
        {"evaluate", folder.file("run/weights.pt"), "--model", "resnet18", "--set", "width=0.125", "--data", data});
  };
  // A small image would have the other stem, and the data has fewer classes than the network.
  for (const char* data : {"synthetic:3x32x32:7:16", "synthetic:3x32x32:5:16"}) {
    const Ended fits = evaluate(data);
    EXPECT_EQ(fits.exit_code, 0) << data << ": " << fits.err;
    EXPECT_THAT(fits.out, HasSubstr("accuracy")) << data;
  }
  const Ended more = evaluate("synthetic:3x32x32:9:16");
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_THAT(more.err, HasSubstr("gives 7 classes, and synthetic has 9"));
}

TEST(Convert, WeightsGoBothWaysAndBeginATraining) {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  expect_success(small() + Words{"--out", run});
  const std::string hash = hash_of(run);
  for (const auto& [from, to] : {std::pair{run, folder.file("a.safetensors")},
                                 {folder.file("a.safetensors"), folder.file("b.pt")},
                                 {folder.file("b.pt"), folder.file("c.safetensors")}}) {
    const Ended ended = run_program({"convert", from, to});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("sha256 " + hash));
    EXPECT_EQ(hash_of(to), hash);
  }
  EXPECT_EQ(read_file(folder.file("a.safetensors")), read_file(run + "/weights.safetensors"));
  // Steps too small to change a float32.
  const Words still = small() + Words{"--lr", "1e-18", "--steps", "1"};
  for (const auto& [from, to] :
       {std::pair{folder.file("c.safetensors"), folder.file("next")}, {run, folder.file("last")}}) {
    expect_success(still + Words{"--init", from, "--out", to});
    EXPECT_EQ(hash_of(to), hash);
  }
  const Ended refused = run_program({"convert", run, folder.file("a.onnx")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("expected .pt, .pth or .safetensors"));
}

TEST(Evaluate, GivesTheFiguresOfTrainingInEveryPlacement) {
  const TemporaryFolder folder;
  const Ended trained = run_program(small() + Words{"--out", folder.file("run")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Ended one =
      run_program({"evaluate", folder.file("run"), "--devices", "1", "--json", "--metrics", "topk,confusion"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const auto facts = nlohmann::json::parse(one.out);
  EXPECT_EQ(facts["examples"], 400);
  EXPECT_GT(facts["accuracy"].get<double>(), 0.5);
  EXPECT_EQ(facts["top5"], 1.0);
  std::ifstream summary(folder.file("run/summary.json"));
  EXPECT_EQ(facts["loss"], nlohmann::json::parse(summary)["test_loss"]);
  const Ended two = run_program(
      {"evaluate", folder.file("run/weights.pt"), "--devices", "2", "--json", "--metrics", "topk,confusion"});
  EXPECT_EQ(two.out, one.out) << two.err;
  const Words rest{"--json", "--metrics", "topk,confusion", "--split"};
  for (const char* split : {"p2", "auto", "test"}) {
    const Ended threads = run_program(Words{"evaluate", folder.file("run"), "--devices", "2"} + rest + Words{split});
    EXPECT_EQ(threads.out, one.out) << split << threads.err;
  }
  if (comm::backends().empty()) return;
  for (const char* file : {"run", "run/weights.pt"})
    for (const char* split : {"data", "p2"}) {
      const Ended processes = run_program(Words{"run", "-n", "2", "--no-prefix", "--", built("bin/lockstep"),
                                                "evaluate", folder.file(file), "--devices", "1"} +
                                          rest + Words{split});
      EXPECT_EQ(processes.out, one.out) << file << split << processes.err;
    }
}

TEST(Evaluate, SaysInOneLineWhatItFound) {
  const TemporaryFolder folder;
  expect_success(small() + Words{"--out", folder.file("run")});
  const Ended ended = run_program({"evaluate", folder.file("run/last.pt"), "--data", "synthetic:1x8x8:4:77"});
  EXPECT_THAT(ended.out, MatchesRegex("77 examples of .*: loss [0-9.]+, accuracy [0-9.]+\n")) << ended.err;
  const Ended none = run_program({"evaluate", folder.file("none.pt")});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("is not there"));
}

TEST(Evaluate, SaysThatANetworkIsOfAProgramOfOnesOwn) {
  const TemporaryFolder folder;
  run::Checkpoint checkpoint;
  checkpoint.model = "mine";
  checkpoint.config = run::to_toml({});
  run::save_checkpoint(folder.file("last.pt"), checkpoint);
  for (const Words& words : {Words{"evaluate", folder.path()}, {"predict", folder.path(), "image.png"}}) {
    const Ended ended = run_program(words);
    EXPECT_EQ(ended.exit_code, 2) << ended.out;
    EXPECT_THAT(ended.err, HasSubstr("is of the network 'mine' of somebody's own program"));
  }
}

TEST(Predict, NamesTheClassesOfImagesAndTensors) {
  const TemporaryFolder folder;
  expect_success(small() + Words{"--out", folder.file("run")});
  const pictures::Image image{.width = 8, .height = 8, .channels = 1, .pixels = std::vector<uint8_t>(64, 128)};
  std::ofstream(folder.file("grey.png"), std::ios::binary) << pictures::encode_png(image);
  const Ended ended = run_program({"predict", folder.file("run"), folder.file("grey.png"), "--json", "--top", "4"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto answers = nlohmann::json::parse(ended.out);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0]["file"], folder.file("grey.png"));
  double sum = 0;
  for (const auto& one : answers[0]["predictions"]) sum += one["probability"].get<double>();
  EXPECT_NEAR(sum, 1, 1e-5);
  const Ended words = run_program({"predict", folder.file("run"), folder.file("grey.png")});
  EXPECT_THAT(words.out, MatchesRegex(".*grey.png: [^,]+ 0[.][0-9]+, [^,]+ 0[.][0-9]+, [^,]+ 0[.][0-9]+\n"));
  const Ended none = run_program({"predict", folder.file("run"), folder.file("none.png")});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("none.png' is no file"));
  const auto refuse = [&](const at::Tensor& inputs, const std::string& message) {
    run::write_weights(folder.file("inputs.pt"), {{"inputs", inputs}});
    const Ended refused = run_program({"predict", folder.file("run"), folder.file("inputs.pt")});
    EXPECT_EQ(refused.exit_code, 2) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr(message));
  };
  refuse(at::zeros({0, 1, 8, 8}), "holds [0, 1, 8, 8], expected one example at least");
  refuse(at::full({2, 1, 8, 8}, NAN), "numbers that are not finite");
}

TEST(Hash, OfADamagedFileIsAMistakeThatNamesIt) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("last.pt")) << "PK\3\4 and so on";
  const Ended ended = run_program({"hash", folder.file("last.pt")});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("last.pt' is cut short or damaged"));
}

}  // namespace
}  // namespace lockstep::cli
