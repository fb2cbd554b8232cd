// SPDX-License-Identifier: Apache-2.0
// The C library's functions that change files, as a program sees them that this is linked into.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <mutex>

#include "crashes/faults.h"

#define LOCKSTEP_INTERPOSED extern "C" __attribute__((visibility("default")))
#define LOCKSTEP_REAL(name) (reinterpret_cast<decltype(&::name)>(dlsym(RTLD_NEXT, #name)))

namespace lockstep::crashes {
namespace {

struct Watch {
  std::mutex mutex;
  std::string folder;  // with a slash behind it; empty: none
  int64_t number = -1;
  Fault fault = Fault::none;
  int64_t seen = 0;
  std::string met;
  bool is_full = false;
  // A rename that may be undone.
  std::string renamed_from, renamed_to, kept_aside;
};

Watch& watched() {
  static auto& watch = *new Watch;  // outlives whoever writes last
  return watch;
}

std::array<std::atomic<bool>, 4096> is_ours{};  // descriptors of files below the folder

bool below(const char* path) {
  const std::string& folder = watched().folder;
  return !folder.empty() && path != nullptr && std::string_view(path).starts_with(folder);
}

bool ours(int fd) {
  return fd >= 0 && fd < static_cast<int>(is_ours.size()) && is_ours[fd];
}

std::string path_of(int fd) {
  char path[4096];
  const auto size = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return size < 0 ? "" : std::string(path, static_cast<size_t>(size));
}

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void undo_rename(Watch& watch) {
  LOCKSTEP_REAL(rename)(watch.renamed_to.c_str(), watch.renamed_from.c_str());
  if (!watch.kept_aside.empty()) LOCKSTEP_REAL(rename)(watch.kept_aside.c_str(), watch.renamed_to.c_str());
}

// What is to become of the call that comes now.
Fault next(const char* call, const std::string& path, bool syncs_folder = false) {
  Watch& watch = watched();
  const std::scoped_lock lock(watch.mutex);
  if (!watch.renamed_to.empty() && watch.fault == Fault::lost_rename) {
    if (syncs_folder && watch.renamed_to.starts_with(path)) {  // it is on the disk from here on
      if (!watch.kept_aside.empty()) LOCKSTEP_REAL(unlink)(watch.kept_aside.c_str());
      watch.fault = Fault::none;
    } else {
      undo_rename(watch);
      die();
    }
  }
  if (watch.is_full) return Fault::disk_full;
  if (watch.seen++ != watch.number || watch.fault == Fault::none) return Fault::none;
  watch.met = std::string(call) + " " + path.substr(std::min(path.size(), watch.folder.size()));
  if (watch.fault == Fault::killed_before) die();
  watch.is_full = watch.fault == Fault::disk_full;
  return watch.fault;
}

int failed(int error) {
  errno = error;
  return -1;
}

// A call that can't be done by halves.
template <class Call>
int whole(const char* name, const std::string& path, const Call& call, bool needs_room = false) {
  switch (next(name, path)) {
    case Fault::io_error:
      return failed(EIO);
    case Fault::disk_full:
      return needs_room ? failed(ENOSPC) : call();
    case Fault::killed_after:
      call();
      die();
    default:
      return call();
  }
}

template <class Call>
ssize_t writing(const char* name, int fd, size_t count, const Call& write) {
  switch (next(name, path_of(fd))) {
    case Fault::io_error:
      return failed(EIO);
    case Fault::interrupted:
      return failed(EINTR);
    case Fault::disk_full: {
      static std::atomic<bool> half{true};
      if (count > 1 && half.exchange(false)) return write(count / 2);
      return failed(ENOSPC);
    }
    case Fault::short_write:
      return write((count + 1) / 2);
    case Fault::killed_after:
      write((count + 1) / 2);
      die();
    default:
      return write(count);
  }
}

template <class Open>
int opening(const char* path, int flags, const Open& open) {
  if (!below(path)) return open();
  const bool changes = (flags & (O_CREAT | O_TRUNC)) != 0;
  const int fd = changes ? whole("open", path, open, (flags & O_CREAT) != 0) : open();
  if (fd >= 0 && fd < static_cast<int>(is_ours.size())) is_ours[fd] = true;
  return fd;
}

}  // namespace

const char* to_string(Fault fault) {
  constexpr const char* names[] = {"none",      "killed before", "killed after", "EIO",
                                   "disk full", "short write",   "interrupted",  "a rename that is lost"};
  return names[static_cast<int>(fault)];
}

void watch(const std::string& folder, int64_t number, Fault fault) {
  Watch& watch = watched();
  const std::scoped_lock lock(watch.mutex);
  watch.folder = folder + "/";
  watch.number = number;
  watch.fault = fault;
  watch.seen = 0;
}
void watch_no_more() {
  Watch& watch = watched();
  const std::scoped_lock lock(watch.mutex);
  if (!watch.renamed_to.empty() && watch.fault == Fault::lost_rename) {
    undo_rename(watch);
    die();
  }
  watch.folder.clear();
  for (auto& descriptor : is_ours) descriptor = false;
}
int64_t calls_seen() {
  return watched().seen;
}
std::string call_that_met_it() {
  return watched().met;
}

}  // namespace lockstep::crashes

using namespace lockstep::crashes;

LOCKSTEP_INTERPOSED int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, mode_t);
  va_end(list);
  return opening(path, flags, [&] { return LOCKSTEP_REAL(open)(path, flags, mode); });
}
LOCKSTEP_INTERPOSED int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, mode_t);
  va_end(list);
  return opening(path, flags, [&] { return LOCKSTEP_REAL(open64)(path, flags, mode); });
}
LOCKSTEP_INTERPOSED int close(int fd) {
  if (fd >= 0 && fd < static_cast<int>(is_ours.size())) is_ours[fd] = false;
  return LOCKSTEP_REAL(close)(fd);
}
LOCKSTEP_INTERPOSED ssize_t write(int fd, const void* bytes, size_t count) {
  const auto real = [&](size_t some) { return LOCKSTEP_REAL(write)(fd, bytes, some); };
  return ours(fd) ? writing("write", fd, count, real) : real(count);
}
LOCKSTEP_INTERPOSED ssize_t pwrite(int fd, const void* bytes, size_t count, off_t at) {
  const auto real = [&](size_t some) { return LOCKSTEP_REAL(pwrite)(fd, bytes, some, at); };
  return ours(fd) ? writing("pwrite", fd, count, real) : real(count);
}
LOCKSTEP_INTERPOSED ssize_t writev(int fd, const iovec* parts, int count) {
  if (!ours(fd)) return LOCKSTEP_REAL(writev)(fd, parts, count);
  return writing("writev", fd, count,
                 [&](size_t some) { return LOCKSTEP_REAL(writev)(fd, parts, static_cast<int>(some)); });
}
LOCKSTEP_INTERPOSED int fsync(int fd) {
  const std::string path = path_of(fd);
  if (!below((path + "/").c_str())) return LOCKSTEP_REAL(fsync)(fd);
  struct stat facts {};
  const bool folder = fstat(fd, &facts) == 0 && S_ISDIR(facts.st_mode);
  switch (next("fsync", path, folder)) {
    case Fault::io_error:
      return failed(EIO);
    case Fault::disk_full:
      return failed(ENOSPC);
    case Fault::killed_after:
      die();
    default:
      return LOCKSTEP_REAL(fsync)(fd);
  }
}
LOCKSTEP_INTERPOSED int ftruncate(int fd, off_t size) noexcept {
  const auto real = [&] { return LOCKSTEP_REAL(ftruncate)(fd, size); };
  return ours(fd) ? whole("ftruncate", path_of(fd), real) : real();
}
LOCKSTEP_INTERPOSED int ftruncate64(int fd, off64_t size) noexcept {
  const auto real = [&] { return LOCKSTEP_REAL(ftruncate64)(fd, size); };
  return ours(fd) ? whole("ftruncate", path_of(fd), real) : real();
}
LOCKSTEP_INTERPOSED int rename(const char* from, const char* to) noexcept {
  if (!below(to)) return LOCKSTEP_REAL(rename)(from, to);
  const Fault fault = next("rename", to);
  if (fault == Fault::io_error) return failed(EIO);
  std::string aside;
  if (fault == Fault::lost_rename) {
    aside = std::string(to) + ".as-it-was";
    if (LOCKSTEP_REAL(link)(to, aside.c_str()) != 0) aside.clear();
  }
  const int result = LOCKSTEP_REAL(rename)(from, to);
  if (fault == Fault::killed_after) die();
  if (fault == Fault::lost_rename && result == 0) {
    watched().renamed_from = from;
    watched().renamed_to = to;
    watched().kept_aside = aside;
  }
  return result;
}
LOCKSTEP_INTERPOSED int link(const char* from, const char* to) noexcept {
  const auto real = [&] { return LOCKSTEP_REAL(link)(from, to); };
  return below(to) ? whole("link", to, real, true) : real();
}
LOCKSTEP_INTERPOSED int unlink(const char* path) noexcept {
  const auto real = [&] { return LOCKSTEP_REAL(unlink)(path); };
  return below(path) ? whole("unlink", path, real) : real();
}
LOCKSTEP_INTERPOSED int remove(const char* path) noexcept {
  const auto real = [&] { return LOCKSTEP_REAL(remove)(path); };
  return below(path) ? whole("remove", path, real) : real();
}
LOCKSTEP_INTERPOSED int mkdir(const char* path, mode_t mode) noexcept {
  const auto real = [&] { return LOCKSTEP_REAL(mkdir)(path, mode); };
  return below(path) ? whole("mkdir", path, real, true) : real();
}
