// SPDX-License-Identifier: Apache-2.0
// libFuzzer on safetensors: any bytes are read or refused with an Error; what is read fills no more memory than the
// file has, and writing and reading it again gives the same tensors.
//
//     ./dev test --preset asan --label fuzz
#include <ATen/core/Tensor.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "lockstep/archive/tensor_file.h"

namespace {

using namespace lockstep::archive;

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "the fuzzer found that %s does not hold\n", what);
  std::abort();
}

void run(std::span<const std::byte> bytes) {
  const Value read = read_tensor_file(bytes, "fuzz.safetensors");
  size_t total = 0;
  for (const auto& [name, value] : read.as<Value::Dict>("")) total += value.as<at::Tensor>(name).nbytes();
  check(total < bytes.size(), "that tensors have no more bytes than their file");
  if (total % 8 != 0) return;  // a file is written in a few tens of microseconds: some are enough
  static const std::string file = "/dev/shm/lockstep_fuzz_" + std::to_string(getpid()) + ".safetensors";
  write_tensor_file(file, read);
  const Value again = read_tensor_file(file);
  std::filesystem::remove(file);
  check(again.as<Value::Dict>("").size() == read.as<Value::Dict>("").size(), "that all tensors are written");
  for (const auto& [name, value] : read.as<Value::Dict>("")) {
    const auto& a = value.as<at::Tensor>(name);
    const auto& b = again.at(name).as<at::Tensor>(name);
    check(a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
              (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0),
          "that a tensor stays as it was written");
  }
}

}  // namespace

// Inputs are headers: the length before one and the blanks that it has for data are put there. So the fuzzer does not
// spend its time on guessing them; every fourth input is a file as it stands.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 2 && data[0] % 4 != 0) {
    const size_t behind = data[1];
    const uint64_t length = size - 2;
    bytes = std::string(reinterpret_cast<const char*>(&length), sizeof length) + bytes.substr(2) +
            std::string(behind, '\0');
  }
  try {
    run(std::as_bytes(std::span(bytes)));
  } catch (const lockstep::Error&) {
    // What bad input is to give.
  }
  return 0;
}
