// SPDX-License-Identifier: Apache-2.0
// libFuzzer on files of torch.save: any bytes are read or refused with an Error, and what is read fills no more memory
// than the file has.
//
//     ./dev test --preset asan --label fuzz
#include <ATen/core/Tensor.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>

#include "fuzzing.h"
#include "lockstep/archive/detail/tensor_archive.h"
#include "lockstep/base/detail/descriptor.h"
#include "lockstep/base/error.h"

namespace {

using namespace lockstep;

void add(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i, value >>= 8) out += static_cast<char>(value);
}

uint32_t sum_of(const std::string& bytes) {
  return static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

// A zip archive of these files, not compressed, each at a multiple of 64 bytes, as torch writes it.
std::string zip_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out, directory;
  for (const auto& [name, bytes] : files) {
    std::string facts;
    add(facts, 0, 8);  // flags, no compression, time
    add(facts, sum_of(bytes), 4);
    add(facts, bytes.size(), 4);
    add(facts, bytes.size(), 4);
    add(facts, name.size(), 2);
    const size_t padding = (64 - (out.size() + 30 + name.size()) % 64) % 64;
    directory += std::string("PK\1\2\0\0\0\0", 8) + facts;
    add(directory, 0, 12);
    add(directory, out.size(), 4);
    directory += name;
    add(facts, padding, 2);
    out += std::string("PK\3\4\0\0", 6) + facts + name + std::string(padding, '\0') + bytes;
  }
  const size_t at = out.size();
  out += directory + std::string("PK\5\6\0\0\0\0", 8);
  add(out, files.size(), 2);
  add(out, files.size(), 2);
  add(out, directory.size(), 4);
  add(out, at, 4);
  add(out, 0, 2);
  return out;
}

int64_t bytes_in(const archive::Value& value) {
  if (const auto* tensor = std::get_if<at::Tensor>(&value.held)) return static_cast<int64_t>(tensor->nbytes());
  int64_t sum = 0;
  if (const auto* dict = std::get_if<archive::Value::Dict>(&value.held))
    for (const auto& [name, item] : *dict) sum += bytes_in(item);
  return sum;
}

}  // namespace

// An input is a pickle, with a storage beside it that it may name: the archive around them is put there, so that the
// fuzzer does not spend its time on guessing one. Every fourth is an archive as it stands.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 1 && data[0] % 4 != 0) {
    const std::string pickle = bytes.substr(1), storage(64, '\1');
    bytes = zip_of({{"a/data.pkl", pickle},
                    {"a/byteorder", "little"},
                    {"a/data/0", storage},
                    {"a/lockstep_crc32", text("data.pkl ", sum_of(pickle), "\ndata/0 ", sum_of(storage), "\n")},
                    {"a/version", "3\n"}});
  }
  test::read_or_refuse([&] {
    const archive::Value read = archive::read_tensor_file(std::as_bytes(std::span(bytes)), "fuzz.pt");
    static_cast<void>(bytes_in(read));
  });
  // The same where it is mapped, from a file that is nowhere.
  static const Descriptor file(memfd_create("fuzz.pt", MFD_CLOEXEC));
  if (ftruncate(file.get(), 0) != 0 || !write_all(file.get(), bytes) || lseek(file.get(), 0, SEEK_SET) != 0) abort();
  test::read_or_refuse([&] {
    const archive::MappedFile read = archive::map_tensor_file(text("/proc/self/fd/", file.get()));
    static_cast<void>(bytes_in(read.value));
  });
  return 0;
}
