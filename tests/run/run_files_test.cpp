// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/run_files.h"
#include "lockstep/base/detail/base64.h"
#include "lockstep/pictures/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/detail/file.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lockstep::run {
namespace {

using test::error_of;
using test::TemporaryFolder;

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

Summary full_summary() {
  return {.name = "lenet",
          .model = "lenet",
          .dataset = "fashion-mnist",
          .placement = "2 threads",
          .state = "interrupted",
          .fingerprint = {{"torch", "2.11.0"}, {"isa", "avx512"}},
          .recipe = std::string(64, 'e'),
          .hash = std::string(64, 'a'),
          .replicas = 8,
          .devices = 2,
          .batch = 256,
          .parameters = 44426,
          .steps = 2350,
          .epochs = 10,
          .seconds = 41.5,
          .train_loss = 0.5,
          .train_accuracy = 0.8,
          .test_loss = 0.6,
          .test_accuracy = 0.79,
          .examples_per_second = 14000,
          .unit = "voxels",
          .speedup = {{1, 256, 0.04, 1}, {2, 256, 0.021, 1.9, Phases{.forward = 0.01}, 1.95}},
          .forecast = "forecast 51.2 ms [49.9, 52.8], was 52.0, +1.6 %"};
}

TEST(Summary, ComesBackAsItWasWritten) {
  const TemporaryFolder folder;
  for (const Summary& summary : {full_summary(), Summary{}}) {
    write_summary(folder / "summary.json", summary);
    EXPECT_EQ(read_summary(folder / "summary.json"), summary);
  }
}

TEST(Summary, HoldsALossThatIsNoNumber) {
  const TemporaryFolder folder;
  write_summary(folder / "summary.json", {.test_loss = std::nan("")});
  EXPECT_TRUE(std::isnan(read_summary(folder / "summary.json").test_loss.value()));
}

TEST(Summary, KeepsBytesThatAreNoTextOutOfItsFile) {
  const TemporaryFolder folder;
  write_summary(folder / "summary.json", {.name = "a\xff z"});
  EXPECT_EQ(read_summary(folder / "summary.json").name, "a\xef\xbf\xbd z");
}

TEST(Summary, NamesTheFileAndTheKeyThatIsWrong) {
  const TemporaryFolder folder;
  const auto file = folder / "summary.json";
  const std::pair<const char*, const char*> cases[] = {
      {"", "parse error"},
      {"3", "got 3, expected an object"},
      {R"({"steps": "many"})", "'steps' is \"many\", expected a whole number"},
      {R"({"model": 5})", "'model' is 5, expected a text"},
      {R"({"fingerprint": {"torch": 2}})", "fingerprint 'torch' is no text"},
      {R"({"speedup": [{"devices": 1}, 4]})", "speedup[1]: got 4, expected an object"},
      {R"({"speedup": 4})", "'speedup' is 4, expected a list"},
  };
  for (const auto& [contents, message] : cases) {
    write_file(file, contents);
    const std::string error = error_of([&] { read_summary(file); });
    EXPECT_THAT(error, HasSubstr("read_summary: " + file.string() + ": ")) << contents;
    EXPECT_THAT(error, HasSubstr(message)) << contents;
  }
}

TEST(Confusion, ComesBackAsItWasWritten) {
  const TemporaryFolder folder;
  const Confusion confusion{{"cat", "dog", "<b>"}, {{5, 0, 1}, {2, 4, 0}, {0, 0, 9'000'000'000}}};
  write_confusion(folder / "confusion.json", confusion);
  EXPECT_EQ(read_confusion(folder / "confusion.json"), confusion);
}

TEST(Confusion, MustBeSquareAndCount) {
  const TemporaryFolder folder;
  const auto file = folder / "confusion.json";
  EXPECT_THAT(error_of([&] {
                write_confusion(file, {{"a", "b"}, {{1, 2}}});
              }),
              HasSubstr("counts have 1 rows, expected 2, one a class"));
  EXPECT_THAT(error_of([&] { write_confusion(file, {{"a"}, {{1, 2}}}); }), HasSubstr("row 0 has 2 counts, expected 1"));
  EXPECT_THAT(error_of([&] { write_confusion(file, {{"a"}, {{-1}}}); }), HasSubstr("row 0 holds -1"));
  EXPECT_FALSE(std::filesystem::exists(file));
  write_file(file, R"({"classes": ["a"], "counts": [[0.5]]})");
  EXPECT_THAT(error_of([&] { read_confusion(file); }), HasSubstr("counts hold 0.5, expected whole numbers"));
  write_file(file, R"({"classes": ["a"]})");
  EXPECT_THAT(error_of([&] { read_confusion(file); }), HasSubstr("'counts' is missing"));
}

TEST(Samples, ComeBackWithTheirPictures) {
  const TemporaryFolder folder;
  const Samples samples{{"shirt", "boot"},
                        {{.id = 17, .image = {2, 1, 1, {0, 255}}, .label = 0, .prediction = 1, .probability = 0.75},
                         {.id = 18, .image = {1, 1, 3, {1, 2, 3}}, .label = 1, .prediction = 1, .probability = 1}}};
  write_samples(folder / "samples.json", samples);
  EXPECT_EQ(read_samples(folder / "samples.json"), samples);
}

TEST(Samples, HaveClassesThatThereAre) {
  const TemporaryFolder folder;
  const auto file = folder / "samples.json";
  const pictures::Image pixel{1, 1, 1, {0}};
  EXPECT_THAT(error_of([&] {
                write_samples(file, {{"a"}, {{.image = pixel, .prediction = 1}}});
              }),
              HasSubstr("sample 0 has class 1, expected 0 to 0"));
  EXPECT_THAT(error_of([&] { write_samples(file, {{}, {{.image = pixel, .label = -1}}}); }), HasSubstr("class -1"));
  write_file(file, R"({"samples": [{"label": 1}]})");
  EXPECT_THAT(error_of([&] { read_samples(file); }), HasSubstr("samples[0]: 'png' is missing"));
  write_file(file, R"({"samples": [{"png": "AAAA"}]})");
  EXPECT_THAT(error_of([&] { read_samples(file); }), HasSubstr("samples[0], offset 0: no PNG signature"));
}

Scenes two_scenes() {
  return {{"floor", "chair"},
          {{.id = 3,
            .mark = 1.5,
            .voxels = {{0, 1, 2}, {65535, 256, 7}},
            .labels = {1, Scene::kUnknown},
            .predictions = {0, 1},
            .colours = {{0, 128, 255}, {1, 2, 3}}},
           {.id = 4}}};
}

TEST(Scenes, ComeBackAsTheyWereWritten) {
  const TemporaryFolder folder;
  write_scenes(folder / "scenes.json", two_scenes());
  EXPECT_EQ(read_scenes(folder / "scenes.json"), two_scenes());
}

TEST(Scenes, PackNumbersWithLowBytesFirst) {
  EXPECT_EQ(packed(two_scenes().scenes[0].voxels), base64(std::string("\0\0\1\0\2\0\xff\xff\0\1\7\0", 12)));
}

TEST(Scenes, HaveAsManyLabelsAsVoxelsAndClassesThatThereAre) {
  const TemporaryFolder folder;
  const auto file = folder / "scenes.json";
  Scenes scenes = two_scenes();
  scenes.scenes[0].labels.pop_back();
  EXPECT_THAT(error_of([&] { write_scenes(file, scenes); }),
              HasSubstr("scene 0 has 2 voxels, 1 labels, 2 predictions and 2 colours, expected as many of each"));
  scenes = two_scenes();
  scenes.scenes[0].predictions[1] = 2;
  EXPECT_THAT(error_of([&] { write_scenes(file, scenes); }), HasSubstr("the prediction 2, expected one of 2 classes"));
  scenes = two_scenes();
  scenes.scenes[0].labels[0] = 2;
  EXPECT_THAT(error_of([&] { write_scenes(file, scenes); }), HasSubstr("the label 2, expected one of 2 classes"));
  EXPECT_FALSE(std::filesystem::exists(file));
  write_file(file, R"({"classes": ["a"], "scenes": [{"voxels": "AAA="}]})");
  EXPECT_THAT(error_of([&] { read_scenes(file); }),
              HasSubstr("scenes[0]: 'voxels' has 2 bytes, expected a multiple of 6"));
  write_file(file, R"({"classes": [4]})");
  EXPECT_THAT(error_of([&] { read_scenes(file); }), HasSubstr("classes[0] is no text"));
}

TEST(Folder, GivesAllThatARunHasWritten) {
  const TemporaryFolder folder;
  const Folder files{folder.path()};
  MetricsWriter::create(files.metrics()).append({.step = 1, .loss = 2.});
  write_summary(files.summary(), full_summary());
  write_file(files.config(), "model = \"lenet\"\n");
  write_confusion(files.confusion(), {{"a"}, {{1}}});
  write_samples(files.samples(), {{}, {{.image = {1, 1, 1, {0}}}}});
  write_scenes(files.scenes(), two_scenes());
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.name, "lenet");
  EXPECT_THAT(run.metrics, SizeIs(1));
  EXPECT_EQ(run.config, "model = \"lenet\"\n");
  EXPECT_EQ(run.summary, full_summary());
  EXPECT_THAT(run.confusion->counts, SizeIs(1));
  EXPECT_THAT(run.samples.samples, SizeIs(1));
  EXPECT_THAT(run.scenes.scenes, SizeIs(2));
}

TEST(Folder, MayHoldNothingButMetrics) {
  const TemporaryFolder folder;
  MetricsWriter::create(folder / "metrics.jsonl");
  const RunData run = read_run(folder.path() / "");
  EXPECT_EQ(run.name, folder.path().filename().string());
  EXPECT_THAT(run.metrics, IsEmpty());
  EXPECT_FALSE(run.summary || run.confusion);
}

TEST(Folder, GivesItsNameWhereTwoRunsHaveTheSame) {
  const TemporaryFolder folder;
  std::vector<std::filesystem::path> folders;
  for (const char* name : {"a", "b", "c"}) {
    folders.push_back(folder / name);
    std::filesystem::create_directory(folders.back());
    write_summary(Folder{folders.back()}.summary(), {.name = *name == 'b' ? "other" : "lenet"});
  }
  const auto runs = read_runs(folders);
  EXPECT_EQ(runs[0].name, folders[0].string());
  EXPECT_EQ(runs[1].name, "other");
  EXPECT_EQ(runs[2].name, folders[2].string());
}

TEST(Folder, MustBeOne) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { read_run(folder.path()); }), HasSubstr("holds neither metrics.jsonl nor summary.json"));
  EXPECT_THAT(error_of([&] { read_run(folder / "none"); }), HasSubstr("is not there, expected the folder of a run"));
  write_file(folder / "file", "");
  EXPECT_THAT(error_of([&] { read_run(folder / "file"); }), HasSubstr("is a file, expected the folder of a run"));
}

}  // namespace
}  // namespace lockstep::run
