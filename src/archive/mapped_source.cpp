// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "archive/source.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"

namespace lockstep::archive {

MappedSource::MappedSource(const std::string& path) {
  const Descriptor file = open_to_read(path, "read_tensor_file");
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0 || facts.st_size == 0) return;
  size_ = static_cast<size_t>(facts.st_size);
  void* const pages = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  require(pages != MAP_FAILED, "read_tensor_file", "'", path, "' can't be mapped into memory: ", std::strerror(errno));
  pages_ = static_cast<char*>(pages);
}

MappedSource::~MappedSource() {
  if (pages_ != nullptr) munmap(pages_, size_);
}

size_t MappedSource::read(uint64_t at, void* into, size_t count, const char* what) const {
  return MemorySource({reinterpret_cast<const std::byte*>(pages_), size_}).read(at, into, count, what);
}

void MappedSource::let_go(size_t offset, size_t count) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page, end = (offset + count) / page * page;
  if (begin < end) madvise(pages_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace lockstep::archive
