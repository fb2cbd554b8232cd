// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/detail/atomic_file.h"
#include "lockstep/base/detail/descriptor.h"

namespace lockstep {
namespace {

[[noreturn]] void throw_error(const char* operation, const std::filesystem::path& file, const char* what) {
  throw FileError(text(operation, ": '", file.native(), "' ", what, ": ", std::strerror(errno)));
}

template <class Bytes>
Bytes read_whole(const std::filesystem::path& file, const char* operation) {
  const Descriptor in = open_to_read(file, operation);
  struct stat facts {};
  if (fstat(in.get(), &facts) != 0) throw_error(operation, file, "can't be read");
  // A pipe has no size, nor has what is in /proc; a file may grow meanwhile. One byte more shows the end of others.
  Bytes bytes;
  bytes.resize(static_cast<size_t>(facts.st_size) + 1);
  for (size_t done = 0;;) {
    if (done == bytes.size()) bytes.resize(2 * done + 4096);
    const ssize_t count = ::read(in.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_error(operation, file, "can't be read");
    if (count == 0) {
      bytes.resize(done);
      return bytes;
    }
    done += static_cast<size_t>(count);
  }
}

}  // namespace

Descriptor open_to_read(const std::filesystem::path& file, const char* operation) {
  Descriptor in(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!in) throw_error(operation, file, "can't be opened");
  struct stat facts {};
  if (fstat(in.get(), &facts) == 0 && S_ISDIR(facts.st_mode))
    throw FileError(text(operation, ": '", file.native(), "' is a folder, expected a file"));
  return in;
}

std::string read_file(const std::filesystem::path& file, const char* operation) {
  return read_whole<std::string>(file, operation);
}

std::vector<uint8_t> read_bytes(const std::filesystem::path& file, const char* operation) {
  return read_whole<std::vector<uint8_t>>(file, operation);
}

void write_file(const std::filesystem::path& file, std::string_view contents, const char* operation) {
  AtomicFile out(file, operation);
  out.write(contents);
  out.commit();
}

void check_writable(const std::filesystem::path& file, const char* operation) {
  if (std::error_code ignored; std::filesystem::is_directory(file, ignored))
    throw FileError(text(operation, ": '", file.native(), "' is a folder, expected a file"));
  const AtomicFile made(file, operation, AtomicFile::Sync::no);
}

}  // namespace lockstep
