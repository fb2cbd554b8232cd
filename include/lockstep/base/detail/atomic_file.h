// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/base/detail/descriptor.h"

namespace lockstep {

/// A file that is seen under its name only when it is whole. It is written beside its place, as FILE.partial, and
/// renamed; a reader, or a crash at any moment, finds the old contents or the new ones.
///
/// - It has the permissions that the umask gives a new file, and takes the place of a symbolic link of its name.
/// - What is not committed is removed. After a kill -9 FILE.partial stays; the next writer replaces it.
/// - Threads and processes may write one file at once: each waits for the one before it. So a thread must not open the
///   same file twice.
/// - What is no regular file, such as a pipe or /dev/stdout, is written to directly.
///
/// All functions throw FileError, which names the file.
class AtomicFile {
 public:
  enum class Sync : bool {
    no,   ///< for what can be made again: after a crash of the machine the file may hold anything
    yes,  ///< the file and its folder are on the disk when commit() returns
  };

  /// `operation` begins the messages of errors; it must outlive the object.
  explicit AtomicFile(std::filesystem::path file, const char* operation = "write_file", Sync sync = Sync::yes);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  /// Gives the file its name. With `keep`, the file that had the name before gets that one; both are there at any
  /// moment where the file system has hard links.
  void commit(const std::filesystem::path& keep = {});

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path file_;
  const char* operation_;
  Sync sync_;
  std::string aside_;  // empty: written to directly, or committed
  Descriptor out_;
  size_t written_ = 0;
};

/// The name that AtomicFile gives a file while it is written.
std::string partial_name(const std::filesystem::path& file);

}  // namespace lockstep
