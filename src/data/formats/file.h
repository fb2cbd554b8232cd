// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data {

namespace fs = std::filesystem;

/// A file read from its beginning, decompressed where it is gzip. Errors name the file and the offset (in what was
/// decompressed, and in the file).
class InputFile {
 public:
  /// Throws Error where it can't be opened.
  explicit InputFile(const fs::path& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  const fs::path& path() const { return path_; }
  int64_t offset() const { return offset_; }

  /// Reads exactly so many bytes, which are `what`. Throws Error where the file ends before, or is corrupt.
  void read(std::span<uint8_t> into, const char* what);
  /// Four bytes, the highest first.
  uint32_t read_big_endian(const char* what);
  /// As many bytes as there are, up to the size; returns how many.
  int64_t read_some(std::span<uint8_t> into);
  /// Throws Error unless the file ends here.
  void expect_end();

  /// Throws Error("FILE, offset N: ...").
  template <class... Parts>
  [[noreturn]] void fail_at(int64_t offset, const Parts&... parts) const {
    fail_text(offset, text(parts...));
  }

 private:
  [[noreturn]] void fail_text(int64_t offset, const std::string& message) const;
  fs::path path_;
  gzFile file_;
  int64_t offset_ = 0;
};

/// The first of these that exists in the folder; empty where none does.
fs::path find_file(const fs::path& folder, const std::vector<std::string>& names);

/// The last part of a path, whether it ends in a slash or not.
std::string name_of(const fs::path& path);

/// ".png" of "a/b.PNG"; empty where there is none.
std::string ending_of(const fs::path& path);

/// Throws Error where the folder is none.
void require_folder(const fs::path& folder);

/// The sub-folders of a folder and its files, sorted by name: no order of the file system's own gets into the data.
std::vector<fs::path> sorted_folders(const fs::path& folder);
std::vector<fs::path> sorted_files(const fs::path& folder);

}  // namespace lockstep::data
