// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "lockstep/base/detail/file.h"

namespace lockstep {
namespace {

bool is_written_directly(const std::filesystem::path& file) {
  struct stat facts {};
  return stat(file.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode);
}

// A new file of this name, locked until it is closed. A file that is there is another writer's, who is waited for, or
// what a killed one left: then nobody holds its lock. No descriptor, with errno, where none can be made.
Descriptor open_locked(const std::string& name) {
  for (;;) {
    Descriptor out(open(name.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!out) {
      const int error = errno;
      // A symbolic link, or what another user left.
      if ((error == ELOOP || error == EACCES) && unlink(name.c_str()) == 0) continue;
      errno = error;
      return {};
    }
    // Some file systems have no locks. Only writers of one file at once are worse off there.
    while (flock(out.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
    struct stat opened {};
    struct stat named {};
    if (fstat(out.get(), &opened) != 0) return {};
    const bool has_name =
        lstat(name.c_str(), &named) == 0 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
    if (!has_name) continue;  // The writer before us has renamed or removed it.
    if (opened.st_size == 0) return out;
    if (unlink(name.c_str()) != 0) return {};
  }
}

// A rename is on the disk when its folder is.
void sync_folder_of(const std::filesystem::path& file) {
  const auto folder = file.parent_path();
  const Descriptor opened(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened) fsync(opened.get());
}

}  // namespace

std::string partial_name(const std::filesystem::path& file) {
  return file.native() + ".partial";
}

AtomicFile::AtomicFile(std::filesystem::path file, const char* operation, Sync sync)
    : file_(std::move(file)), operation_(operation), sync_(sync) {
  if (is_written_directly(file_)) {
    out_ = Descriptor(open(file_.c_str(), O_WRONLY | O_CLOEXEC));
    if (!out_) fail("can't be written");
    return;
  }
  std::string aside = partial_name(file_);
  out_ = open_locked(aside);
  if (!out_) fail("can't be written");
  aside_ = std::move(aside);
}

AtomicFile::~AtomicFile() {
  if (!aside_.empty()) unlink(aside_.c_str());
}

void AtomicFile::fail(const char* what) const {
  const int error = errno;
  throw FileError(text(operation_, ": '", file_.native(), "' ", what,
                       written_ > 0 ? text(" past ", written_, " bytes") : "", ": ", std::strerror(error)));
}

void AtomicFile::write(std::string_view bytes) {
  if (!write_all(out_.get(), bytes)) fail("can't be written");
  written_ += bytes.size();
}

void AtomicFile::commit(const std::filesystem::path& keep) {
  if (aside_.empty()) return;
  if (sync_ == Sync::yes && fsync(out_.get()) != 0) fail("can't be written");
  if (!keep.empty() && access(file_.c_str(), F_OK) == 0) {
    unlink(keep.c_str());
    if (link(file_.c_str(), keep.c_str()) != 0 && rename(file_.c_str(), keep.c_str()) != 0) fail("can't be kept");
  }
  if (rename(aside_.c_str(), file_.c_str()) != 0) fail("can't be written");
  aside_.clear();
  out_.close();
  if (sync_ == Sync::yes) sync_folder_of(file_);
}

}  // namespace lockstep
