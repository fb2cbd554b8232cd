// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/dataset.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <zlib.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "data/formats/reading.h"
#include "lockstep/base/detail/instruction_set.h"
#include "support/files.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void append_big_endian(Bytes& bytes, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(value >> shift));
}

Bytes idx_images(uint32_t count, uint32_t height, uint32_t width) {
  Bytes bytes;
  for (const uint32_t value : {0x803u, count, height, width}) append_big_endian(bytes, value);
  for (uint32_t i = 0; i < count * height * width; ++i) bytes.push_back(static_cast<uint8_t>(i * 37 + 11));
  return bytes;
}

Bytes idx_labels(uint32_t count) {
  Bytes bytes;
  for (const uint32_t value : {0x801u, count}) append_big_endian(bytes, value);
  for (uint32_t i = 0; i < count; ++i) bytes.push_back(static_cast<uint8_t>(i % 10));
  return bytes;
}

Bytes gzip(const TemporaryFolder& folder, const Bytes& bytes) {
  const std::string path = (folder / "packed").string();
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  std::ifstream packed(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(packed), {}};
}

std::vector<int64_t> all_of(const Dataset& dataset) {
  std::vector<int64_t> ids(dataset.size());
  std::iota(ids.begin(), ids.end(), int64_t{0});
  return ids;
}

TEST(Idx, PlainAndGzipFilesReadAsMultiplesOfOneOver255) {
  const TemporaryFolder folder;
  const Bytes images = idx_images(12, 3, 5), labels = idx_labels(12);
  for (const bool packed : {false, true}) {
    const std::string ending = packed ? ".gz" : "";
    const TemporaryFolder own;
    own.write("train-images-idx3-ubyte" + ending, packed ? gzip(folder, images) : images);
    own.write("train-labels-idx1-ubyte" + ending, packed ? gzip(folder, labels) : labels);
    const auto dataset = open_dataset("mnist:" + own.path().string(), Subset::train);
    EXPECT_EQ(dataset->info().name, "mnist");
    EXPECT_EQ(dataset->size(), 12);
    EXPECT_THAT(dataset->info().input_shape, ElementsAre(1, 3, 5));
    EXPECT_EQ(dataset->info().classes, 10);
    const Read got = read(*dataset, {11, 0, 11});
    EXPECT_THAT(got.targets, ElementsAre(1, 0, 1));
    for (int row = 0; row < 3; ++row)
      for (int i = 0; i < 15; ++i)
        EXPECT_EQ(got.inputs[row * 15 + i], static_cast<float>(images[16 + (row == 1 ? 0 : 11) * 15 + i]) / 255.0f);
    EXPECT_EQ(open_dataset(own.path().string(), Subset::train)->size(), 12) << "recognised by what it holds";
  }
}

TEST(Idx, EveryTruncationOfImagesNamesTheFileAndTheOffset) {
  const TemporaryFolder folder;
  const Bytes images = idx_images(3, 2, 4);
  folder.write("train-labels-idx1-ubyte", idx_labels(3));
  for (size_t size = 0; size < images.size(); ++size) {
    folder.write("train-images-idx3-ubyte", first(images, size));
    const size_t begin = size < 16 ? size / 4 * 4 : 16;
    EXPECT_THAT(open_error("mnist:" + folder.path().string()),
                AllOf(HasSubstr("train-images-idx3-ubyte, offset " + std::to_string(begin) + ":"),
                      HasSubstr("the file ends after " + std::to_string(size - begin)), HasSubstr("truncated")))
        << size;
  }
}

TEST(Idx, EveryTruncationOfLabelsIsAnError) {
  const TemporaryFolder folder;
  const Bytes labels = idx_labels(3);
  folder.write("t10k-images-idx3-ubyte", idx_images(3, 2, 4));
  for (size_t size = 0; size < labels.size(); ++size) {
    folder.write("t10k-labels-idx1-ubyte", first(labels, size));
    EXPECT_THAT(open_error("mnist:" + folder.path().string(), Subset::test),
                HasSubstr("t10k-labels-idx1-ubyte, offset"));
  }
}

TEST(Idx, EveryTruncationOfAGzipFileIsAnError) {
  const TemporaryFolder folder;
  const Bytes packed = gzip(folder, idx_images(30, 8, 8));
  folder.write("train-labels-idx1-ubyte", idx_labels(30));
  for (size_t size = 1; size < packed.size(); size += size < 40 ? 1 : 97) {
    folder.write("train-images-idx3-ubyte.gz", first(packed, size));
    EXPECT_THAT(open_error("mnist:" + folder.path().string()), HasSubstr("train-images-idx3-ubyte.gz, offset")) << size;
  }
}

TEST(Idx, AChangedByteOfAGzipFileIsAnError) {
  const TemporaryFolder folder;
  const Bytes packed = gzip(folder, idx_images(30, 8, 8));
  folder.write("train-labels-idx1-ubyte", idx_labels(30));
  for (size_t at = 10; at < packed.size(); at += 131) {
    Bytes changed = packed;
    changed[at] ^= 0x55;
    folder.write("train-images-idx3-ubyte.gz", changed);
    EXPECT_NE(open_error("mnist:" + folder.path().string()), "") << at;
  }
}

TEST(Idx, WrongHeadersSayWhatWasGotAndExpected) {
  const TemporaryFolder folder;
  const std::string spec = "mnist:" + folder.path().string();
  folder.write("train-images-idx3-ubyte", idx_labels(3));
  folder.write("train-labels-idx1-ubyte", idx_labels(3));
  EXPECT_THAT(open_error(spec), HasSubstr("offset 0: the magic number is 2049, expected 2051"));
  folder.write("train-images-idx3-ubyte", idx_images(3, 0, 4));
  EXPECT_THAT(open_error(spec), HasSubstr("offset 8: the header says images of 0 x 4"));
  Bytes huge = idx_images(3, 2, 2);
  std::fill_n(huge.begin() + 4, 12, uint8_t{0});
  huge[5] = 4;               // 2^18 images
  huge[10] = huge[14] = 16;  // of 2^12 x 2^12
  folder.write("train-images-idx3-ubyte", huge);
  EXPECT_THAT(open_error(spec), HasSubstr("offset 4: the header says 262144 images of 4096 x 4096, expected at most"));
  folder.write("train-images-idx3-ubyte", idx_images(4, 2, 2));
  EXPECT_THAT(open_error(spec), HasSubstr("offset 4: the header says 3 labels, expected 4"));
  Bytes longer = idx_images(3, 2, 2);
  longer.push_back(0);
  folder.write("train-images-idx3-ubyte", longer);
  EXPECT_THAT(open_error(spec), HasSubstr("offset 28: there are more bytes, expected the end"));
}

TEST(Idx, ALabelOutOfRangeIsFoundAtItsOffset) {
  const TemporaryFolder folder;
  Bytes labels = idx_labels(3);
  labels[9] = 10;
  folder.write("train-images-idx3-ubyte", idx_images(3, 2, 2));
  folder.write("train-labels-idx1-ubyte", labels);
  EXPECT_THAT(open_error("mnist:" + folder.path().string()),
              HasSubstr("train-labels-idx1-ubyte, offset 9: label 1 is 10, expected a class in [0, 10)"));
}

TEST(Idx, MissingFilesAreNamed) {
  const TemporaryFolder folder;
  folder.write("train-images-idx3-ubyte", idx_images(3, 2, 2));
  EXPECT_THAT(open_error("mnist:" + folder.path().string()), HasSubstr("has no train-labels-idx1-ubyte"));
  EXPECT_THAT(open_error("mnist:" + (folder / "none").string()), HasSubstr("is not there, expected a folder"));
}

TEST(FashionMnist, TheDebianPackageHas60000And10000ImagesOfTenClasses) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  const auto train = open_dataset("fashion-mnist", Subset::train), test = open_dataset("fashion-mnist", Subset::test);
  EXPECT_EQ(train->size(), 60000);
  EXPECT_EQ(test->size(), 10000);
  EXPECT_EQ(train->info().class_names[9], "ankle boot");
  std::vector<int64_t> counts(10);
  for (const int64_t target : train->targets()) ++counts[target];
  EXPECT_THAT(counts, testing::Each(6000));
  EXPECT_NEAR(train->normalization().mean[0], 0.2860, 5e-5);  // as torchvision's users write it
  EXPECT_NEAR(train->normalization().deviation[0], 0.3530, 5e-5);
  EXPECT_EQ(open_dataset("/usr/share/datasets/fashion-mnist", Subset::test)->info().name, "fashion-mnist");
}

Bytes cifar_records(size_t count, uint8_t salt) {
  Bytes bytes;
  for (size_t n = 0; n < count; ++n) {
    bytes.push_back(static_cast<uint8_t>((n + salt) % 10));
    for (int i = 0; i < 3072; ++i) bytes.push_back(static_cast<uint8_t>(n * 7 + static_cast<size_t>(i) * 3 + salt));
  }
  return bytes;
}

void write_cifar(const TemporaryFolder& folder) {
  for (uint8_t i = 1; i <= 5; ++i) folder.write("data_batch_" + std::to_string(i) + ".bin", cifar_records(3, i));
  folder.write("test_batch.bin", cifar_records(2, 6));
}

TEST(Cifar10, RecordsOfFiveFilesFollowEachOther) {
  const TemporaryFolder folder;
  write_cifar(folder);
  const auto train = open_dataset("cifar10:" + folder.path().string(), Subset::train);
  EXPECT_EQ(train->size(), 15);
  EXPECT_THAT(train->info().input_shape, ElementsAre(3, 32, 32));
  const Read got = read(*train, {4});
  const Bytes record = cifar_records(3, 2);
  EXPECT_EQ(got.targets[0], 3);
  for (int i = 0; i < 3072; ++i) ASSERT_EQ(got.inputs[i], static_cast<float>(record[3073 + 1 + i]) / 255.0f) << i;
  EXPECT_EQ(open_dataset(folder.path().string(), Subset::test)->size(), 2) << "recognised by what it holds";
}

TEST(Cifar10, TruncatedMislabelledEmptyAndMissingFilesAreErrors) {
  const TemporaryFolder folder;
  write_cifar(folder);
  const std::string spec = "cifar10:" + folder.path().string();
  const Bytes whole = cifar_records(3, 1);
  for (const size_t size : {1u, 3072u, 3074u, 6145u, 6147u, 9218u}) {
    folder.write("data_batch_1.bin", first(whole, size));
    EXPECT_THAT(open_error(spec), HasSubstr("data_batch_1.bin, offset " + std::to_string(size / 3073 * 3073) +
                                            ": the file ends after " + std::to_string(size % 3073) + " of the 3073"));
  }
  folder.write("data_batch_1.bin", {});
  EXPECT_THAT(open_error(spec), HasSubstr("offset 0: the file is empty"));
  Bytes mislabelled = whole;
  mislabelled[3073] = 200;
  folder.write("data_batch_1.bin", mislabelled);
  EXPECT_THAT(open_error(spec), HasSubstr("offset 3073: the label of record 1 is 200, expected a class in [0, 10)"));
  std::filesystem::remove(folder / "data_batch_1.bin");
  EXPECT_THAT(open_error(spec), HasSubstr("has no data_batch_1.bin"));
}

TEST(Dataset, EveryLayoutAndCpuLevelReadsTheSameValues) {
  const TemporaryFolder folder;
  write_cifar(folder);
  const auto dataset = open_dataset("cifar10:" + folder.path().string(), Subset::train);
  const std::vector<float> scale{2.0f, 3.0f, 0.7f}, shift{-0.1f, 0.2f, 0.3f};
  const std::vector<int64_t> ids{7, 0, 14, 3};
  const Read raw = read(*dataset, ids);
  for (const CpuLevel level : available_cpu_levels()) {
    const ScopedCpuLevel scoped(level);
    const Read planar = read(*dataset, ids, Layout::contiguous, {scale, shift});
    const Read last = read(*dataset, ids, Layout::channels_last, {scale, shift});
    for (int64_t n = 0; n < 4; ++n)
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t i = 0; i < 1024; ++i) {
          const float scaled = raw.inputs[(n * 3 + c) * 1024 + i] * scale[c];
          const float expected = scaled + shift[c];
          ASSERT_EQ(planar.inputs[(n * 3 + c) * 1024 + i], expected);
          ASSERT_EQ(last.inputs[n * 3072 + i * 3 + c], expected);
        }
  }
}

TEST(Dataset, NormalizationIsMeanAndDeviationOfEachChannel) {
  const TemporaryFolder folder;
  write_cifar(folder);
  const auto bytes = open_dataset("cifar10:" + folder.path().string(), Subset::train);
  const Read all = read(*bytes, all_of(*bytes));
  const at::Tensor values = at::empty({15, 3, 32, 32});
  std::ranges::copy(all.inputs, values.mutable_data_ptr<float>());
  const auto floats = make_dataset("floats", values, at::zeros({15}, at::kLong));
  for (int64_t c = 0; c < 3; ++c) {
    const at::Tensor channel = values.select(1, c).to(at::kDouble);
    const double mean = channel.mean().item<double>();
    const double deviation = (channel - mean).square().mean().sqrt().item<double>();
    for (const auto& dataset : {bytes, floats}) {
      EXPECT_NEAR(dataset->normalization().mean[c], mean, 1e-6);
      EXPECT_NEAR(dataset->normalization().deviation[c], deviation, 1e-6);
    }
  }
}

TEST(Dataset, AnIdOutOfRangeIsAnError) {
  const auto dataset = open_dataset("synthetic:1x2x2:2:5", Subset::train);
  EXPECT_THAT(error_of([&] { read(*dataset, {0, 5}); }), HasSubstr("example 5 of synthetic, expected one in [0, 5)"));
  EXPECT_NE(error_of([&] { read(*dataset, {-1}); }), "no error");
}

TEST(Dataset, TheFirstExamplesOfAnotherAreItsOwn) {
  const auto whole = open_dataset("synthetic:2x3x3:4:20", Subset::train);
  const auto some = first_of(whole, 6);
  EXPECT_EQ(some->size(), 6);
  EXPECT_EQ(read(*some, {5, 1}).inputs, read(*whole, {5, 1}).inputs);
  EXPECT_EQ(some->targets(), (std::vector<int64_t>{0, 1, 2, 3, 0, 1}));
  EXPECT_NE(error_of([&] { read(*some, {6}); }), "no error");
  EXPECT_NE(error_of([&] { first_of(whole, 21); }), "no error");
}

TEST(Synthetic, IsAFunctionOfSeedSplitAndIdAndItsClassesCanBeTold) {
  const auto train = open_dataset("synthetic:3x4x4:5:200", Subset::train);
  const auto again = open_dataset("synthetic:3x4x4:5:200", Subset::train);
  const auto test = open_dataset("synthetic:3x4x4:5:200", Subset::test);
  const auto other = open_dataset("synthetic:3x4x4:5:200", Subset::train, {.seed = 1});
  EXPECT_THAT(train->info().input_shape, ElementsAre(3, 4, 4));
  const Read all = read(*train, all_of(*train));
  EXPECT_EQ(all.inputs, read(*again, all_of(*again)).inputs);
  EXPECT_NE(all.inputs, read(*test, all_of(*test)).inputs);
  EXPECT_NE(all.inputs, read(*other, all_of(*other)).inputs);
  EXPECT_EQ(read(*train, {150, 3}).inputs[0], all.inputs[150 * 48]);
  // The means of the training classes recognise most of the test set.
  std::vector<double> means(5 * 48);
  for (int64_t n = 0; n < 200; ++n)
    for (int64_t i = 0; i < 48; ++i) means[all.targets[n] * 48 + i] += all.inputs[n * 48 + i] / 40;
  const Read unseen = read(*test, all_of(*test));
  int right = 0;
  for (int64_t n = 0; n < 200; ++n) {
    std::vector<double> distances(5);
    for (int64_t c = 0; c < 5; ++c)
      for (int64_t i = 0; i < 48; ++i) distances[c] += std::pow(unseen.inputs[n * 48 + i] - means[c * 48 + i], 2);
    right += std::ranges::min_element(distances) - distances.begin() == unseen.targets[n];
  }
  EXPECT_GT(right, 160);
}

TEST(OpenDataset, AnUnknownSpecListsWhatThereIs) {
  for (const char* spec :
       {"fashion", "mnist:", "synthetic:1x2:3", "synthetic:1x0:3:4", "synthetic:1x2:3:x", "nofile.pt"})
    EXPECT_THAT(open_error(spec), AllOf(HasSubstr(spec), HasSubstr("synthetic:SHAPE:CLASSES:COUNT"))) << spec;
  const TemporaryFolder empty;
  EXPECT_THAT(open_error(empty.path().string()), HasSubstr("holds no data set, expected IDX files"));
}

TEST(MakeDataset, TensorsOfOneOwnAreReadAsTheyAre) {
  const at::Tensor inputs = at::arange(24, at::kDouble).view({4, 3, 2}).transpose(1, 2);
  const auto dataset = make_dataset("own", inputs, at::arange(4, at::kInt), 0, {"a", "b", "c", "d"});
  EXPECT_THAT(dataset->info().input_shape, ElementsAre(2, 3));
  EXPECT_EQ(dataset->info().classes, 4);
  EXPECT_THAT(read(*dataset, {2}).inputs, ElementsAre(12, 14, 16, 13, 15, 17));
  const auto pixels = make_dataset("pixels", at::zeros({2, 1, 2, 2}), at::full({2, 2, 2}, -100, at::kLong), 3);
  EXPECT_THAT(pixels->info().target_shape, ElementsAre(2, 2));
  EXPECT_THAT(read(*pixels, {1}).targets, ElementsAre(-100, -100, -100, -100));
  EXPECT_THAT(error_of([&] {
                make_dataset("bad", at::zeros({2, 3}), at::arange(2), 1);
              }),
              HasSubstr("target 1 is 1, expected a class in [0, 1)"));
  for (const int64_t stray : {(int64_t{1} << 31) - 1, int64_t{1} << 61, std::numeric_limits<int64_t>::max()})
    EXPECT_THAT(error_of([&] {
                  make_dataset("bad", at::zeros({2, 3}), at::tensor({int64_t{0}, stray}));
                }),
                HasSubstr(text("target 1 is ", stray, ", expected a class below 16777216")));
  EXPECT_THAT(error_of([&] {
                make_dataset("bad", at::zeros({2, 3}), at::arange(2), int64_t{1} << 40);
              }),
              HasSubstr("bad has 1099511627776 classes, expected 1 to 16777216"));
  EXPECT_NE(error_of([&] { make_dataset("bad", at::zeros({2, 3}), at::arange(3)); }), "no error");
  EXPECT_NE(error_of([&] { make_dataset("bad", at::zeros({2, 3}), at::zeros({2})); }), "no error");
  EXPECT_NE(error_of([&] { make_dataset("bad", at::zeros({2, 3}, at::kLong), at::arange(2)); }), "no error");
}

}  // namespace
}  // namespace lockstep::data
