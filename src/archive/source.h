// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <caffe2/serialize/read_adapter_interface.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>

#include "lockstep/base/detail/file.h"

/// What a reader of tensors takes its bytes from.
namespace lockstep::archive {

using Source = caffe2::serialize::ReadAdapterInterface;

class MemorySource : public Source {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t size() const override { return bytes_.size(); }
  size_t read(uint64_t at, void* into, size_t count, const char* /*what*/) const override {
    if (at >= bytes_.size()) return 0;
    count = std::min<size_t>(count, bytes_.size() - at);
    std::memcpy(into, bytes_.data() + at, count);
    return count;
  }

 private:
  std::span<const std::byte> bytes_;
};

// Reads each tensor from the file to its place: a file of gigabytes is in memory once.
class FileSource : public Source {
 public:
  explicit FileSource(const std::string& path) : file_(open_to_read(path, "read_tensor_file")) {
    struct stat facts {};
    size_ = fstat(file_.get(), &facts) == 0 ? static_cast<size_t>(facts.st_size) : 0;
  }
  size_t size() const override { return size_; }
  size_t read(uint64_t at, void* into, size_t count, const char* /*what*/) const override {
    size_t done = 0;
    while (done < count) {
      const ssize_t got =
          pread(file_.get(), static_cast<char*>(into) + done, count - done, static_cast<off_t>(at + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;  // The reader above says that the file is cut short.
      done += static_cast<size_t>(got);
    }
    return done;
  }

 private:
  Descriptor file_;
  size_t size_ = 0;
};

/// A file whose pages are memory: they are read when they are looked at, and the system may take them back. What is
/// written to them stays here.
class MappedSource : public Source {
 public:
  explicit MappedSource(const std::string& path);
  ~MappedSource() override;
  MappedSource(const MappedSource&) = delete;
  MappedSource& operator=(const MappedSource&) = delete;

  size_t size() const override { return size_; }
  size_t read(uint64_t at, void* into, size_t count, const char* what) const override;

  char* at(size_t offset) const { return pages_ + offset; }
  /// What nobody has written to is read again when it is looked at again.
  void let_go(size_t offset, size_t count) const;

 private:
  char* pages_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lockstep::archive
