// SPDX-License-Identifier: Apache-2.0
// Files of PyTorch, written and read: both directions with Python, and what a damaged file says.
#include "lockstep/archive/tensor_file.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "archive/pickle.h"
#include "lockstep/archive/detail/tensor_archive.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/run/weights.h"
#include "support/full_disk.h"
#include "support/temporary_folder.h"

namespace lockstep::archive {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::string& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

// The two ways to read one.
Value read_whole(const std::string& path) {
  return read_tensor_file(path);
}
Value map_file(const std::string& path) {
  return map_tensor_file(path).value;
}

// A dict with one of everything.
Value sample() {
  return {Value::Dict{{"float", {at::arange(6, at::kFloat).view({2, 3})}},
                      {"transposed", {at::arange(6, at::kDouble).view({2, 3}).t()}},
                      {"half", {at::full({3}, 0.5, at::kHalf)}},
                      {"bfloat16", {at::full({3}, -2, at::kBFloat16)}},
                      {"long", {at::tensor(std::vector<int64_t>{1, int64_t{1} << 60}, at::kLong)}},
                      {"bool", {at::ones({2}, at::kBool)}},
                      {"scalar", {at::scalar_tensor(2.5, at::kFloat)}},
                      {"empty", {at::empty({0, 4}, at::kFloat)}},
                      {"integer", {int64_t{-7}}},
                      {"large", {std::numeric_limits<int64_t>::min()}},
                      {"number", {0.1}},
                      {"yes", {true}},
                      {"none", {}},
                      {"text", {std::string("zwei\nZeilen \xc3\xbc")}},
                      {"list", {Value::List{{int64_t{1}}, {std::string("a")}, {Value::List{}}}}},
                      {"dict", {Value::Dict{{"inner", {int64_t{300}}}}}}}};
}

// What a fault did: no exception, an Error, or worse.
template <class Error>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(TensorFile, GivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  const auto file = folder.file("sample.pt");
  write_tensor_file(file, sample());
  const Value read = read_tensor_file(file);
  const Value expected = sample();
  ASSERT_EQ(read.as<Value::Dict>("").size(), expected.as<Value::Dict>("").size());
  for (const auto& [name, value] : expected.as<Value::Dict>("")) {
    const Value& found = read.at(name);
    ASSERT_EQ(found.held.index(), value.held.index()) << name;
    if (const auto* tensor = std::get_if<at::Tensor>(&value.held)) {
      const auto& other = found.as<at::Tensor>(name);
      EXPECT_EQ(other.scalar_type(), tensor->scalar_type()) << name;
      EXPECT_EQ(other.sizes(), tensor->sizes()) << name;
      EXPECT_TRUE(at::equal(other, *tensor)) << name;
    }
  }
  EXPECT_EQ(read.at("integer").as<int64_t>("integer"), -7);
  EXPECT_EQ(read.at("large").as<int64_t>("large"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(read.at("number").as<double>("number"), 0.1);
  EXPECT_EQ(read.at("text").as<std::string>("text"), "zwei\nZeilen \xc3\xbc");
  EXPECT_EQ(read.at("list").as<Value::List>("list").size(), 3u);
  EXPECT_EQ(read.at("dict").at("inner").as<int64_t>("inner"), 300);
  EXPECT_FALSE(std::filesystem::exists(file + ".partial"));
}

TEST(TensorFile, KeepsTiedTensorsTiedAndWritesThemOnce) {
  const TemporaryFolder folder;
  const auto tensor = at::rand({1000});
  write_tensor_file(folder.file("a.pt"), {Value::Dict{{"a", {tensor}}, {"b", {tensor}}}});
  const Value read = read_tensor_file(folder.file("a.pt"));
  EXPECT_EQ(read.at("a").as<at::Tensor>("a").const_data_ptr(), read.at("b").as<at::Tensor>("b").const_data_ptr());
  EXPECT_LT(std::filesystem::file_size(folder.file("a.pt")), 6000u);
}

TEST(TensorFile, WritesOfAViewOnlyWhatItShows) {
  const TemporaryFolder folder;
  write_tensor_file(folder.file("a.pt"), {Value::Dict{{"a", {at::rand({1 << 20}).narrow(0, 5, 10)}}}});
  EXPECT_LT(std::filesystem::file_size(folder.file("a.pt")), 4000u);
}

TEST(TensorFile, WritesTheValuesOfConjugatedAndNegatedViews) {
  const TemporaryFolder folder;
  const auto tensor = at::rand({3}, at::kComplexFloat);
  write_tensor_file(folder.file("a.pt"), {Value::Dict{{"a", {tensor.conj()}}, {"b", {at::imag(tensor.conj())}}}});
  const Value read = read_tensor_file(folder.file("a.pt"));
  EXPECT_TRUE(at::equal(read.at("a").as<at::Tensor>("a"), tensor.conj().resolve_conj()));
  EXPECT_TRUE(at::equal(read.at("b").as<at::Tensor>("b"), -at::imag(tensor)));
  EXPECT_EQ(run::hash_of({{"a", tensor.conj()}}), run::hash_of({{"a", tensor.conj().resolve_conj()}}));
}

// Each list holds the one before it nine times: 9^12 values in some hundred bytes.
TEST(TensorFile, ValuesThatRepeatWithoutEndAreRefused) {
  std::string pickled = "\x80\x02]";
  for (char slot = 0; slot < 12; ++slot) {
    pickled += text('q', slot, "](");
    for (int copy = 0; copy < 9; ++copy) pickled += text('h', slot);
    pickled += 'e';
  }
  pickled += '.';
  const auto none = [](const std::string&, size_t) { return c10::Storage(); };
  EXPECT_THAT(message_of<Error>([&] { unpickle(std::as_bytes(std::span(pickled)), none, "bomb.pt"); }),
              HasSubstr("'bomb.pt' repeats its values without end"));
}

// One that holds itself, and one that is two million deep: neither is a leak, or too deep to be destroyed.
TEST(TensorFile, ListsWithoutABottomAreRefused) {
  const auto none = [](const std::string&, size_t) { return c10::Storage(); };
  for (const std::string& lists : {std::string("]q\x01h\x01"
                                               "a"),
                                   "]" + std::string(2'000'000, '\x85')}) {
    const std::string pickled = "\x80\x02" + lists + ".";
    EXPECT_THAT(message_of<Error>([&] { unpickle(std::as_bytes(std::span(pickled)), none, "well.pt"); }),
                HasSubstr("'well.pt' nests more than"));
  }
}

TEST(TensorFile, CutShortAnywhereIsDamaged) {
  const TemporaryFolder folder;
  write_tensor_file(folder.file("a.pt"), sample());
  const std::string whole = bytes_of(folder.file("a.pt"));
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const size_t length = trial < 8 ? trial : random() % whole.size();
    write(folder.file("b.pt"), whole.substr(0, length));
    for (const auto& read : {&map_file, &read_whole})
      EXPECT_THAT(message_of<DamagedFile>([&] { read(folder.file("b.pt")); }),
                  HasSubstr("expected a whole file of torch.save"))
          << length << " of " << whole.size() << " bytes";
  }
}

TEST(TensorFile, AMappedFileIsReadWhereItLies) {
  const TemporaryFolder folder;
  const std::string file = folder.file("a.pt");
  const at::Tensor tensor = at::arange(5000, at::kFloat);
  write_tensor_file(file, {Value::Dict{{"tensor", {tensor}}, {"empty", {at::empty({0})}}, {"number", {0.5}}}});
  const std::string bytes = bytes_of(file);
  const Value value = map_file(file);
  EXPECT_EQ(value.at("number").as<double>("number"), 0.5);
  EXPECT_EQ(value.at("empty").as<at::Tensor>("empty").numel(), 0);
  const auto mapped = value.at("tensor").as<at::Tensor>("tensor");
  EXPECT_TRUE(at::equal(mapped, tensor));
  mapped.add_(1);
  EXPECT_EQ(bytes_of(file), bytes) << "a tensor's changes are its own";
  write_tensor_file(file, {tensor * 2});
  EXPECT_TRUE(at::equal(mapped, tensor + 1)) << "another file with the name changes nothing";
}

TEST(TensorFile, AChangedByteOfATensorOrThePickleIsDamaged) {
  const TemporaryFolder folder;
  const auto tensor = at::full({100}, 3.25, at::kFloat);
  write_tensor_file(folder.file("a.pt"), {Value::Dict{{"needle", {tensor}}}});
  for (const std::string& part : {std::string(static_cast<const char*>(tensor.const_data_ptr()), 64),
                                  std::string("needle"), std::string("little")}) {
    std::string bytes = bytes_of(folder.file("a.pt"));
    const size_t at = bytes.find(part);
    ASSERT_NE(at, std::string::npos);
    bytes[at + 3] ^= 1;
    write(folder.file("b.pt"), bytes);
    for (const auto& read : {&map_file, &read_whole})
      EXPECT_THAT(message_of<DamagedFile>([&] { read(folder.file("b.pt")); }), HasSubstr("damaged bytes"));
  }
}

TEST(TensorFile, SaysWhatAFileIsThatItCannotRead) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<Error>([&] { read_tensor_file(folder.file("none.pt")); }),
              HasSubstr("can't be opened: No such file or directory"));
  write(folder.file("text.pt"), "hello, this is no zip");
  EXPECT_THAT(message_of<DamagedFile>([&] { read_tensor_file(folder.file("text.pt")); }), HasSubstr("is no zip"));
  write(folder.file("old.pt"), "\x80\x02}q.");
  EXPECT_THAT(message_of<Error>([&] { read_tensor_file(folder.file("old.pt")); }), HasSubstr("a bare pickle"));
}

TEST(TensorFile, AFullDiskIsAnErrorThatNamesTheFile) {
  const TemporaryFolder folder;
  {
    const test::FullDisk disk(100);
    EXPECT_THAT(message_of<FileError>([&] { write_tensor_file(folder.file("a.pt"), sample()); }),
                AllOf(HasSubstr("a.pt' can't be written"), HasSubstr("File too large")));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.pt.partial")));
  EXPECT_THAT(message_of<FileError>([&] { write_tensor_file(folder.file("no/such/a.pt"), sample()); }),
              HasSubstr("No such file or directory"));
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  EXPECT_THAT(message_of<FileError>([&] { write_tensor_file("/dev/full", sample()); }),
              HasSubstr("'/dev/full' can't be written: No space left on device"));
}

// Python's side: tensor_file.py DIRECTION FILE.
class WithPython : public ::testing::Test {
 protected:
  void SetUp() override {
    if (access(LOCKSTEP_TORCH_PYTHON, X_OK) != 0) GTEST_SKIP() << "no " << LOCKSTEP_TORCH_PYTHON;
  }
  int python(const std::string& what, const std::string& file) {
    const std::string command =
        text("'", LOCKSTEP_TORCH_PYTHON, "' '", LOCKSTEP_TENSOR_FILE_PY, "' ", what, " '", file, "'");
    return std::system(command.c_str());  // NOLINT(bugprone-command-processor)
  }
  TemporaryFolder folder_;
};

TEST_F(WithPython, LoadsWhatIsWrittenHereWithWeightsOnly) {
  write_tensor_file(folder_.file("sample.pt"), sample());
  run::write_weights(folder_.file("sample.weights.pt"), {{"weight", at::full({3, 4}, 0.5)}, {"bias", at::arange(3)}});
  EXPECT_EQ(python("check", folder_.file("sample.pt")), 0);
}

TEST_F(WithPython, SavesWhatIsReadHere) {
  ASSERT_EQ(python("save", folder_.file("python.pt")), 0);
  const Value read = read_tensor_file(folder_.file("python.pt"));
  const auto tensor = [&](const std::string& name) { return read.at(name).as<at::Tensor>(name); };
  EXPECT_TRUE(at::equal(tensor("base"), at::arange(12, at::kFloat).view({3, 4})));
  EXPECT_TRUE(at::equal(tensor("view"), at::arange(12, at::kFloat).view({3, 4}).t().narrow(0, 1, 2)));
  EXPECT_TRUE(tensor("view").is_alias_of(tensor("base")));
  EXPECT_TRUE(at::equal(tensor("channels_last"), at::arange(24, at::kDouble).view({1, 2, 3, 4})));
  EXPECT_TRUE(at::equal(tensor("parameter"), at::full({2}, 7, at::kFloat)));
  EXPECT_EQ(tensor("bfloat16").scalar_type(), at::kBFloat16);
  EXPECT_EQ(tensor("empty").sizes(), at::IntArrayRef({0, 2}));
  EXPECT_EQ(read.at("big").as<int64_t>("big"), int64_t{1} << 40);
  EXPECT_EQ(read.at("negative").as<int64_t>("negative"), -(int64_t{1} << 40));
  EXPECT_EQ(read.at("numbers").at("3").as<double>("3"), 0.5);
  EXPECT_EQ(read.at("shape").as<Value::List>("shape").size(), 2u);
  EXPECT_THAT(message_of<Error>([&] { run::weights_in(read, "python.pt"); }), HasSubstr("expected a checkpoint"));
}

TEST_F(WithPython, ViewsThatAreConjugatedOrNegatedAreRefused) {
  ASSERT_EQ(python("conjugated", folder_.file("a.pt")), 0);
  EXPECT_THAT(message_of<Error>([&] { read_tensor_file(folder_.file("a.pt")); }),
              HasSubstr("a conjugated or negated view, expected its values"));
}

TEST_F(WithPython, StateDictsAreReadAndHashedAlike) {
  ASSERT_EQ(python("state_dict", folder_.file("state.pt")), 0);
  const run::Tensors weights = run::read_weights(folder_.file("state.pt"));
  EXPECT_EQ(weights.size(), 7u);
  EXPECT_TRUE(at::equal(weights.at("1.running_var"), at::ones({4})));
  run::write_weights(folder_.file("again.pt"), weights);
  EXPECT_EQ(run::hash_of(run::read_weights(folder_.file("again.pt"))), run::hash_of(weights));
  EXPECT_EQ(run::hash_of(run::read_weights(folder_.file("state.pt.nested"))), run::hash_of(weights));
}

TEST_F(WithPython, ObjectsOfOtherClassesAreRefusedByName) {
  ASSERT_EQ(python("objects", folder_.file("objects.pt")), 0);
  EXPECT_THAT(message_of<Error>([&] { read_tensor_file(folder_.file("objects.pt")); }),
              HasSubstr("torch.nn.modules.linear Linear"));
}

TEST(Hash, FollowsNamesTypesShapesAndBytesOnly) {
  const auto weight = at::rand({4, 3, 2, 2});
  const std::string hash = run::hash_of({{"a", weight}});
  EXPECT_EQ(hash.size(), 64u);
  EXPECT_EQ(run::hash_of({{"a", weight.contiguous(at::MemoryFormat::ChannelsLast)}}), hash);
  EXPECT_NE(run::hash_of({{"b", weight}}), hash);
  EXPECT_NE(run::hash_of({{"a", weight.view({4, 12})}}), hash);
  EXPECT_NE(run::hash_of({{"a", weight.view(at::kInt)}}), hash);
  const auto other = weight.clone();
  other.view(at::kInt)[0][0][0][0] += 1;
  EXPECT_NE(run::hash_of({{"a", other}}), hash);
}

}  // namespace
}  // namespace lockstep::archive
