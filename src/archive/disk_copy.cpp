// SPDX-License-Identifier: Apache-2.0
#include "lockstep/archive/detail/disk_copy.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/base/detail/descriptor.h"
#include "lockstep/base/log.h"

namespace lockstep::archive {
namespace {

constexpr size_t kSmall = 1 << 16;  // bytes

struct Pages {
  void* begin;
  size_t bytes;
};

void unmap(void* context) {
  const std::unique_ptr<Pages> pages(static_cast<Pages*>(context));
  munmap(pages->begin, pages->bytes);
}

Descriptor open_unnamed(const std::string& folder) {
  std::string name = folder + "/lockstep-XXXXXX";
  Descriptor out(mkostemp(name.data(), O_CLOEXEC));
  if (out) unlink(name.c_str());
  return out;
}

// None, with errno, where there is no place for it.
at::DataPtr pages_with(const void* bytes, size_t count, const std::string& folder) {
  const Descriptor file = open_unnamed(folder);
  if (!file || !write_all(file.get(), {static_cast<const char*>(bytes), count})) return {};
  // Shared, so that what is written to a page is in the file when the page is let go.
  void* const begin = mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (begin == MAP_FAILED) return {};
  return {begin, new Pages{begin, count}, &unmap, at::kCPU};
}

}  // namespace

at::Tensor disk_copy(const at::Tensor& tensor) {
  const at::Tensor row_major = tensor.detach().cpu().contiguous();
  const auto copy = [&] { return row_major.clone(); };
  if (row_major.nbytes() < kSmall) return copy();
  const char* const told = std::getenv("TMPDIR");
  const std::string folder = told != nullptr && *told != '\0' ? told : "/var/tmp";
  at::DataPtr pages = pages_with(row_major.const_data_ptr(), row_major.nbytes(), folder);
  if (!pages) {
    log_info("'", folder, "' has no place for ", row_major.nbytes(), " bytes (", std::strerror(errno),
             "), they stay in memory: set TMPDIR to a folder with more");
    return copy();
  }
  const c10::Storage storage(c10::Storage::use_byte_size_t(), row_major.nbytes(), std::move(pages), nullptr, false);
  return at::empty({0}, row_major.options()).set_(storage, 0, row_major.sizes(), row_major.strides());
}

void let_go(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.storage().data_ptr().get_deleter() != &unmap) return;
  const auto* pages = static_cast<const Pages*>(tensor.storage().data_ptr().get_context());
  madvise(pages->begin, pages->bytes, MADV_DONTNEED);
}

}  // namespace lockstep::archive
