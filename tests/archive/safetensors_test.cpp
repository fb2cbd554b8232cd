// SPDX-License-Identifier: Apache-2.0
// Safetensors, written and read: both directions with Python, and what a damaged header says.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "archive/safetensors_header.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/run/weights.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lockstep::archive {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;

/// As named_tensors() of tensor_file.py.
Value::Dict named_tensors() {
  Value::Dict out;
  const auto numbers = at::arange(6, at::kLong).view({2, 3});
  for (const auto& [name, type] :
       std::vector<std::pair<const char*, c10::ScalarType>>{{"bool", c10::kBool},
                                                            {"uint8", c10::kByte},
                                                            {"int8", c10::kChar},
                                                            {"int16", c10::kShort},
                                                            {"uint16", c10::kUInt16},
                                                            {"int32", c10::kInt},
                                                            {"uint32", c10::kUInt32},
                                                            {"int64", c10::kLong},
                                                            {"uint64", c10::kUInt64},
                                                            {"float16", c10::kHalf},
                                                            {"bfloat16", c10::kBFloat16},
                                                            {"float32", c10::kFloat},
                                                            {"float64", c10::kDouble},
                                                            {"complex64", c10::kComplexFloat},
                                                            {"float8_e4m3fn", c10::kFloat8_e4m3fn},
                                                            {"float8_e5m2", c10::kFloat8_e5m2}})
    out.push_back({name, {numbers.to(type)}});
  out.push_back({"scalar", {at::scalar_tensor(2.5, at::kFloat)}});
  out.push_back({"empty", {at::zeros({0, 4}, at::kFloat)}});
  out.push_back({"name \"\\\" \xc3\xbc", {at::ones({1}, at::kFloat)}});
  return out;
}

void expect_named_tensors(const Value& read) {
  const Value::Dict expected = named_tensors();
  ASSERT_EQ(read.as<Value::Dict>("").size(), expected.size());
  for (const auto& [name, value] : expected) {
    const auto& tensor = std::get<at::Tensor>(value.held);
    const auto& found = read.at(name).as<at::Tensor>(name);
    EXPECT_EQ(found.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(found.sizes(), tensor.sizes()) << name;
    if (tensor.numel() == 0) continue;
    EXPECT_EQ(std::memcmp(found.const_data_ptr(), tensor.const_data_ptr(), tensor.nbytes()), 0) << name;
  }
}

Value read_bytes_of(const std::string& bytes) {
  return read_tensor_file(std::as_bytes(std::span(bytes)), "memory.safetensors");
}

std::string file_of(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

std::string refusal_of(const std::string& bytes) {
  try {
    read_bytes_of(bytes);
  } catch (const DamagedFile& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Safetensors, GiveBackEveryDtypeThatWasWritten) {
  const TemporaryFolder folder;
  const auto file = folder.file("a.safetensors");
  write_tensor_file(file, {named_tensors()});
  expect_named_tensors(read_tensor_file(file));
  const std::string bytes = read_file(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  EXPECT_EQ(length % 8, 0u);
  for (const TensorPlace& place :
       parse_safetensors_header({bytes.data() + 8, length}, bytes.size() - 8 - length, "a.safetensors"))
    EXPECT_EQ(place.begin % c10::elementSize(place.type), 0u) << place.name;
}

TEST(Safetensors, HoldTheSameWeightsAsAPtFile) {
  const TemporaryFolder folder;
  const auto tied = at::rand({4, 3});
  const run::Tensors weights{{"a", tied}, {"b", tied.t()}, {"c", at::rand({2, 3}).narrow(1, 1, 2)}};
  run::write_weights(folder.file("a.pt"), weights);
  run::write_weights(folder.file("a.safetensors"), weights);
  EXPECT_EQ(run::hash_of(run::read_weights(folder.file("a.safetensors"))), run::hash_of(weights));
  EXPECT_EQ(run::hash_of(run::read_weights(folder.file("a.pt"))), run::hash_of(weights));
}

TEST(Safetensors, WhatTheyCannotHoldIsRefusedByName) {
  const TemporaryFolder folder;
  const auto refuse = [&](Value value, const std::string& message) {
    EXPECT_THAT(test::error_of([&] { write_tensor_file(folder.file("a.safetensors"), value); }), HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(folder.file("a.safetensors")));
  };
  const auto tensor = at::ones({2});
  refuse({int64_t{3}}, "the value is an integer, expected a dict of tensors");
  refuse({Value::Dict{{"epoch", {int64_t{3}}}}}, "'epoch' is an integer, expected tensors alone");
  refuse({Value::Dict{{"a", {tensor.to(at::kComplexDouble)}}}}, "'a' has dtype ComplexDouble");
  refuse({Value::Dict{{"__metadata__", {tensor}}}}, "the name '__metadata__'");
  refuse({Value::Dict{{"a", {tensor}}, {"a", {tensor}}}}, "two tensors have the name 'a'");
  refuse({Value::Dict{{"\xff", {tensor}}}}, "not UTF-8");
}

TEST(Safetensors, HeadersThatDoNotFitAreRefusedWithWhatIsWrong) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return text(R"({"a":{"dtype":)", dtype, R"(,"shape":)", shape, R"(,"data_offsets":)", offsets, "}}");
  };
  const auto refuse = [](const std::string& header, size_t data, const std::string& message) {
    EXPECT_THAT(refusal_of(file_of(header, std::string(data, '\0'))), HasSubstr(message)) << header;
  };
  ASSERT_EQ(read_bytes_of(file_of(one("\"F32\"", "[2]", "[0,8]"), "12345678")).at("a").as<at::Tensor>("a").numel(), 2);
  EXPECT_TRUE(read_bytes_of(file_of("{}  ")).as<Value::Dict>("").empty());

  refuse(one("\"F31\"", "[2]", "[0,8]"), 8, "has dtype 'F31', which torch does not have (tensor 'a')");
  refuse(one("4", "[2]", "[0,8]"), 8, "has the number 4 outside of a shape");
  refuse(one("\"F32\"", "[-2]", "[0,8]"), 8, "has a number below 0");
  refuse(one("\"F32\"", "[2.0]", "[0,8]"), 8, "has the number 2.0");
  refuse(one("\"F32\"", "[2]", "[0,8,9]"), 8, "has 3 data_offsets");
  refuse(one("\"F32\"", "2", "[0,8]"), 8, "has the number 2 outside of a shape");
  refuse(one("\"F32\"", "[[2]]", "[0,8]"), 8, "has a list where none belongs");
  refuse(one("\"F32\"", "{\"a\":{}}", "[0,8]"), 8, "has an object inside of a tensor");
  refuse(one("\"F32\"", "null", "[0,8]"), 8, "has null");
  refuse(one("true", "[2]", "[0,8]"), 8, "has true or false");
  // Lengths.
  refuse(one("\"F32\"", "[3]", "[0,8]"), 8, "has 8 bytes of tensor 'a', expected 12 by its shape and dtype");
  refuse(one("\"F32\"", "[2]", "[0,8]"), 7, "expected them in order and below its 7 bytes");
  refuse(one("\"F32\"", "[2]", "[0,8]"), 9, "has 1 bytes of no tensor at its end");
  refuse(one("\"F32\"", "[2]", "[8,0]"), 8, "bytes of no tensor before tensor 'a'");
  refuse(one("\"F32\"", "[2]", "[0,18446744073709551615]"), 8, "expected them in order and below its 8 bytes");
  refuse(one("\"F32\"", "[2]", "[0,18446744073709551616]"), 8, "has the number 18446744073709551616");
  // Sizes that overflow: 2^32 * 2^32 * 4 bytes is 0 in 64 bits; a size of 0 must not hide the others.
  refuse(one("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0, "expected a size of less than 2^63");
  refuse(one("\"F32\"", "[0,4294967296,4294967296]", "[0,0]"), 0, "expected a size of less than 2^63");
  refuse(one("\"F32\"", "[9223372036854775808]", "[0,0]"), 0, "has a size of 9223372036854775808");
  // Two tensors.
  const auto two = [](const std::string& a, const std::string& b, const std::string& name = "b") {
    return text(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)", a, R"(},")", name,
                R"(":{"dtype":"U8","shape":[4],"data_offsets":)", b, "}}");
  };
  ASSERT_EQ(read_bytes_of(file_of(two("[4,8]", "[0,4]"), "12345678")).as<Value::Dict>("").size(), 2u);
  refuse(two("[0,4]", "[3,7]"), 7, "has bytes of two tensors before tensor 'b', which begins at byte 3");
  refuse(two("[0,4]", "[5,9]"), 9, "has bytes of no tensor before tensor 'b', which begins at byte 5");
  refuse(two("[0,4]", "[0,4]"), 4, "has bytes of two tensors");
  refuse(two("[0,4]", "[4,8]", "a"), 8, "has 'a' twice");
  // Fields and shapes of the JSON itself.
  refuse(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0, "has 'dtype' twice");
  refuse(R"({"a":{"dtype":"U8","shape":[0]}})", 0, "lacks a dtype, a shape or data_offsets (tensor 'a')");
  refuse(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":[1]}})", 0, "has the field 'more'");
  refuse(R"({"a":"F32"})", 0, "has the text 'F32' where none belongs");
  refuse(R"({"a":[1]})", 0, "has a list where none belongs");
  refuse(R"({"__metadata__":{"step":3}})", 0, "has the number 3");
  refuse(R"({"__metadata__":{"step":{}}})", 0, "has an object inside");
  refuse(R"({"__metadata__":{"a":"1"},"__metadata__":{}})", 0, "has '__metadata__' twice");
  refuse(R"({"a":)", 0, "is no JSON at byte");
  refuse("{\"\xff\":{}}", 0, "is no JSON at byte");
  refuse("{} {}", 0, "is no JSON at byte");
  refuse(" {}", 0, "has no JSON object as its header");
  refuse("[]", 0, "has no JSON object as its header");
  refuse("", 0, "has no JSON object as its header");
  refuse(std::string(100'000, '{'), 0, "is no JSON at byte");
  refuse(R"({"a":)" + std::string(100'000, '['), 0, "has a list where none belongs");
  // The length before the header.
  EXPECT_THAT(refusal_of(""), HasSubstr("has 0 bytes"));
  EXPECT_THAT(refusal_of("1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(refusal_of(std::string(8, '\xff') + "{}"), HasSubstr("names a header of 18446744073709551615 bytes"));
  EXPECT_THAT(refusal_of(file_of("{}").substr(0, 9)), HasSubstr("names a header of 2 bytes, and has 1"));
  EXPECT_THAT(refusal_of(file_of(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\x02")),
              HasSubstr("bytes other than 0 and 1 in tensor 'a'"));
}

TEST(Safetensors, CutShortAnywhereTheyAreDamaged) {
  const TemporaryFolder folder;
  write_tensor_file(folder.file("a.safetensors"), {Value::Dict{{"a", {at::rand({3})}}, {"b", {at::ones({2, 2})}}}});
  const std::string whole = read_file(folder.file("a.safetensors"));
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_THAT(refusal_of(whole.substr(0, length)), HasSubstr("memory.safetensors'")) << length;
  EXPECT_EQ(read_bytes_of(whole).as<Value::Dict>("").size(), 2u);
}

// Python's side: tensor_file.py DIRECTION FILE.
int python(const std::string& what, const std::string& file) {
  const std::string command =
      text("'", LOCKSTEP_TORCH_PYTHON, "' '", LOCKSTEP_TENSOR_FILE_PY, "' ", what, " '", file, "'");
  return std::system(command.c_str());  // NOLINT(bugprone-command-processor)
}

TEST(SafetensorsWithPython, EachSideReadsWhatTheOtherWrites) {
  if (access(LOCKSTEP_TORCH_PYTHON, X_OK) != 0) GTEST_SKIP() << "no " << LOCKSTEP_TORCH_PYTHON;
  const TemporaryFolder folder;
  write_tensor_file(folder.file("here.safetensors"), {named_tensors()});
  EXPECT_EQ(python("check_safetensors", folder.file("here.safetensors")), 0);
  ASSERT_EQ(python("save_safetensors", folder.file("python.safetensors")), 0);
  expect_named_tensors(read_tensor_file(folder.file("python.safetensors")));
}

}  // namespace
}  // namespace lockstep::archive
