// SPDX-License-Identifier: Apache-2.0
#include "lockstep/archive/detail/safe_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

// A rename is on the disk when its folder is.
void sync_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

SafeFile::SafeFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {
  fd_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("can't be made");
}

SafeFile::~SafeFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(partial_.c_str());
}

void SafeFile::fail(const char* what) const {
  throw std::system_error(errno, std::generic_category(),
                          text("'", path_, "' ", what, written_ > 0 ? text(" past ", written_, " bytes") : ""));
}

void SafeFile::write(const void* bytes, size_t count) {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = ::write(fd_, from, std::min<size_t>(count, 1 << 30));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("can't be written");
    from += done;
    count -= done;
    written_ += done;
  }
}

void SafeFile::commit(const std::string& keep) {
  if (fsync(fd_) != 0) fail("can't be written");
  if (!keep.empty() && access(path_.c_str(), F_OK) == 0) {
    unlink(keep.c_str());
    if (link(path_.c_str(), keep.c_str()) != 0 && rename(path_.c_str(), keep.c_str()) != 0) fail("can't be kept");
  }
  if (rename(partial_.c_str(), path_.c_str()) != 0) fail("can't be renamed");
  close(fd_);
  fd_ = -1;
  sync_folder_of(path_);
}

}  // namespace lockstep::train
