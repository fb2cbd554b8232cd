// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/detail/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/run/detail/descriptor.h"

namespace lockstep::run {

std::string read_file(const std::filesystem::path& file) {
  std::error_code ignored;
  require(!std::filesystem::is_directory(file, ignored), "read_file", file, " is a folder, expected a file");
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  require(in.is_open(), "read_file", file, ": ", std::strerror(errno));
  std::string contents{std::istreambuf_iterator<char>(in), {}};
  require(!in.bad(), "read_file", file, ": ", std::strerror(errno));
  return contents;
}

namespace {

// A fixed name: what a killed run left half-written is written over by the next one.
std::filesystem::path aside_of(const std::filesystem::path& file) {
  return file.string() + ".partial";
}

Descriptor open_new(const std::filesystem::path& file) {
  return Descriptor(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
}

}  // namespace

void check_writable(const std::filesystem::path& file) {
  const std::filesystem::path aside = aside_of(file);
  const Descriptor out = open_new(aside);
  const int error = out.get() < 0 ? errno : std::filesystem::is_directory(file) ? EISDIR : 0;
  if (out.get() >= 0) unlink(aside.c_str());
  require(error == 0, "write_file", file, ": ", std::strerror(error));
}

void write_file_atomically(const std::filesystem::path& file, std::string_view contents) {
  const std::filesystem::path aside = aside_of(file);
  const Descriptor out = open_new(aside);
  int error = out.get() < 0 ? errno : 0;
  if (error == 0 &&
      (!write_all(out.get(), contents) || fsync(out.get()) != 0 || std::rename(aside.c_str(), file.c_str()) != 0)) {
    error = errno;
    unlink(aside.c_str());
  }
  require(error == 0, "write_file", file, ": ", std::strerror(error));
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace lockstep::run
