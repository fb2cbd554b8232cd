// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::train {

/// A file that appears under its name only when it is whole and on the disk: written to PATH.partial, synced, renamed,
/// and the folder synced. What is not committed is removed; after a kill -9 the partial file stays and is overwritten
/// by the next one. All throw std::system_error that names the file.
class SafeFile {
 public:
  explicit SafeFile(std::string path);
  ~SafeFile();
  SafeFile(const SafeFile&) = delete;
  SafeFile& operator=(const SafeFile&) = delete;

  void write(const void* bytes, size_t count);
  /// Makes it the file of that name. With `keep` the file that had the name gets that one; both are there at any
  /// moment, where the file system has hard links.
  void commit(const std::string& keep = {});

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  std::string partial_;
  int fd_ = -1;
  size_t written_ = 0;
};

}  // namespace lockstep::train
