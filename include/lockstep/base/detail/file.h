// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/detail/descriptor.h"
#include "lockstep/base/error.h"

// Whole files. `operation` begins the messages of errors: "read_weights: 'a.pt' can't be opened: Permission denied".
namespace lockstep {

/// A file that can't be read or written. The message names the operation and the file, and says what failed and why.
class FileError : public Error {
 public:
  using Error::Error;
};

/// Opens a file or a pipe for reading. Throws FileError where that can't be done, or it is a folder.
Descriptor open_to_read(const std::filesystem::path& file, const char* operation = "read_file");

/// The whole of a file or a pipe. Throws FileError where it can't be read, or is a folder.
std::string read_file(const std::filesystem::path& file, const char* operation = "read_file");
std::vector<uint8_t> read_bytes(const std::filesystem::path& file, const char* operation = "read_bytes");

/// Makes or replaces a file as AtomicFile does. Throws FileError.
void write_file(const std::filesystem::path& file, std::string_view contents, const char* operation = "write_file");

/// Throws the FileError that write_file would throw where no file can be made there. For use before long work whose
/// results the file is to hold.
void check_writable(const std::filesystem::path& file, const char* operation = "write_file");

}  // namespace lockstep
