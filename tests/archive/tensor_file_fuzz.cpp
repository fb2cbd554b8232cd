// SPDX-License-Identifier: Apache-2.0
// libFuzzer on files of torch.save: any bytes are read or refused with an Error, and what is read fills no more memory
// than the file has.
//
//     ./dev test --preset asan --label fuzz
#include <ATen/core/Tensor.h>
#include <zlib.h>

#include "fuzzing.h"
#include "lockstep/archive/tensor_file.h"

namespace {

using namespace lockstep;

void add(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i, value >>= 8) out += static_cast<char>(value);
}

// A zip archive of these files, not compressed, as torch writes it.
std::string zip_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out, directory;
  for (const auto& [name, bytes] : files) {
    std::string facts;
    add(facts, 0, 8);  // flags, no compression, time
    add(facts, crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())), 4);
    add(facts, bytes.size(), 4);
    add(facts, bytes.size(), 4);
    add(facts, name.size(), 2);
    add(facts, 0, 2);
    directory += std::string("PK\1\2\0\0\0\0", 8) + facts.substr(0, 26);
    add(directory, 0, 10);
    add(directory, out.size(), 4);
    directory += name;
    out += std::string("PK\3\4\0\0", 6) + facts + name + bytes;
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
  if (size > 1 && data[0] % 4 != 0)
    bytes = zip_of({{"a/data.pkl", bytes.substr(1)},
                    {"a/byteorder", "little"},
                    {"a/data/0", std::string(64, '\1')},
                    {"a/version", "3\n"}});
  test::read_or_refuse([&] {
    const archive::Value read = archive::read_tensor_file(std::as_bytes(std::span(bytes)), "fuzz.pt");
    static_cast<void>(bytes_in(read));
  });
  return 0;
}
