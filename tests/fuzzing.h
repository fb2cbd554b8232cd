// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "lockstep/base/error.h"

/// What programs share that libFuzzer drives.
namespace lockstep::test {

/// Ends the program, with the input that led here kept by libFuzzer, where a promise does not hold.
inline void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "the fuzzer found that %s does not hold\n", what);
  std::abort();
}

/// Any bytes are read, or refused with an Error in one line.
template <class Read>
void read_or_refuse(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    check(std::string(error.what()).find('\n') == std::string::npos, "that an error is one line");
  }
}

/// A file of this process in memory, with these bytes.
inline std::string file_with(std::span<const uint8_t> bytes, const std::string& name) {
  static const std::filesystem::path folder = "/dev/shm/lockstep_fuzz_" + std::to_string(getpid());
  std::filesystem::create_directories((folder / name).parent_path());
  std::ofstream(folder / name, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return folder / name;
}

}  // namespace lockstep::test
