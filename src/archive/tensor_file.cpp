// SPDX-License-Identifier: Apache-2.0
#include "lockstep/archive/tensor_file.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "archive/pickle.h"
#include "archive/safetensors.h"
#include "archive/source.h"
#include "lockstep/archive/detail/disk_copy.h"
#include "lockstep/archive/detail/tensor_archive.h"
#include "lockstep/base/detail/first_line.h"

namespace lockstep::archive {
namespace {

using caffe2::serialize::PyTorchStreamReader;
using caffe2::serialize::PyTorchStreamWriter;

// torch.load ignores records that it does not know. libtorch's reader is built without the zip's own checks.
constexpr const char* kChecksums = "lockstep_crc32";
constexpr size_t kAlignment = 64;  // of records that libtorch writes

uint32_t checksum(const void* bytes, size_t count) {
  return static_cast<uint32_t>(crc32_z(0, static_cast<const Bytef*>(bytes), count));
}

template <class... Parts>
[[noreturn]] void damaged(const std::string& name, const Parts&... parts) {
  throw DamagedFile(text("read_tensor_file: '", name, "' ", parts..., ", expected a whole file of torch.save"));
}

class Archive {
 public:
  Archive(const std::shared_ptr<Source>& source, const std::string& name)
      : name_(name), mapped_(std::dynamic_pointer_cast<MappedSource>(source)), reader_(source) {
    if (reader_.hasRecord("byteorder")) {
      const auto [order, size] = reader_.getRecord("byteorder");
      const std::string_view word(static_cast<const char*>(order.get()), size);
      require(word != "big", "read_tensor_file", "'", name,
              "' was written on a big-endian machine, expected a little-endian one");
      if (word != "little") damaged(name, "has damaged bytes in 'byteorder'");
    }
    if (!reader_.hasRecord(kChecksums)) return;
    const auto [lines, size] = reader_.getRecord(kChecksums);
    lines_.assign(static_cast<const char*>(lines.get()), size);
    std::istringstream in(lines_);
    uint32_t sum = 0;
    for (std::string record; in >> record >> sum;) checksums_[record] = sum;
  }

  std::pair<at::DataPtr, size_t> record(const std::string& name) {
    if (!reader_.hasRecord(name)) damaged(name_, "has no '", name, "'");
    const auto sum = checksums_.find(name);
    if (sum != checksums_.end() && mapped_ != nullptr)
      if (auto in_place = mapped_record(name, sum->second); in_place.first) return in_place;
    auto [bytes, size] = reader_.getRecord(name);
    if (sum != checksums_.end() && sum->second != checksum(bytes.get(), size))
      damaged(name_, "has damaged bytes in '", name, "'");
    return {std::move(bytes), size};
  }

  c10::Storage storage(const std::string& key, size_t bytes) {
    auto& known = storages_[key];
    if (!known) {
      if (bytes == 0) return {c10::Storage::use_byte_size_t(), 0, at::DataPtr(), nullptr, false};
      auto [data, size] = record("data/" + key);
      if (size < bytes) damaged(name_, "has ", size, " bytes in 'data/", key, "', not ", bytes);
      known = c10::Storage(c10::Storage::use_byte_size_t(), size, std::move(data), nullptr, false);
    }
    if (known.nbytes() < bytes) damaged(name_, "has ", known.nbytes(), " bytes in 'data/", key, "', not ", bytes);
    return known;
  }

  const std::string& checksums() const { return lines_; }

  Value read() {
    const auto [bytes, size] = record("data.pkl");
    return unpickle(
        {static_cast<const std::byte*>(bytes.get()), size},
        [this](const std::string& key, size_t count) { return storage(key, count); }, name_);
  }

 private:
  // Files of ours lie so that a record can be used where it is. Empty: it has to be read, and may be damaged.
  std::pair<at::DataPtr, size_t> mapped_record(const std::string& name, uint32_t sum) {
    const size_t offset = reader_.getRecordOffset(name), size = reader_.getRecordSize(name);
    if (offset % kAlignment != 0 || offset > mapped_->size() || size > mapped_->size() - offset ||
        checksum(mapped_->at(offset), size) != sum)
      return {};
    mapped_->let_go(offset, size);
    at::DataPtr bytes(
        mapped_->at(offset), new std::shared_ptr(mapped_),
        [](void* pages) { delete static_cast<std::shared_ptr<MappedSource>*>(pages); }, at::kCPU);
    return {std::move(bytes), size};
  }

  const std::string& name_;
  const std::shared_ptr<MappedSource> mapped_;
  PyTorchStreamReader reader_;
  std::string lines_;
  std::map<std::string, uint32_t> checksums_;
  std::map<std::string, c10::Storage> storages_;
};

MappedFile read(const std::shared_ptr<Source>& source, const std::string& name) {
  if (is_safetensors(name)) return {read_safetensors(*source, name), {}};
  std::array<uint8_t, 4> begin{};
  const size_t size = source->read(0, begin.data(), begin.size(), "the signature");
  if (size == 0) damaged(name, "is empty");
  // The sign of torch.save's older format, a bare pickle.
  require(begin[0] != 0x80, "read_tensor_file", "'", name,
          "' is a bare pickle, expected the zip that torch.save writes since 1.6");
  if (size < begin.size() || std::memcmp(begin.data(), "PK\3\4", 4) != 0) damaged(name, "is no zip");
  try {
    Archive archive(source, name);
    return {archive.read(), archive.checksums()};
  } catch (const c10::Error& error) {
    damaged(name, "is cut short or damaged (", first_line(error.what_without_backtrace()), ")");
  }
}

void add(PyTorchStreamWriter& archive, std::string& checksums, const std::string& name, const void* bytes,
         size_t count) {
  archive.writeRecord(name, bytes, count);
  checksums += text(name, " ", checksum(bytes, count), "\n");
}

}  // namespace

const Value* Value::find(const std::string& key) const {
  const auto* dict = std::get_if<Dict>(&held);
  if (dict == nullptr) return nullptr;
  for (const auto& [name, value] : *dict)
    if (name == key) return &value;
  return nullptr;
}

const Value& Value::at(const std::string& key) const {
  const Value* found = find(key);
  require(found != nullptr, "tensor file", "there is no '", key, "' in ", kind(), ", expected one");
  return *found;
}

const char* Value::kind() const {
  static constexpr const char* kNames[] = {"None", "a bool",   "an integer", "a number",
                                           "text", "a tensor", "a list",     "a dict"};
  return kNames[held.index()];
}

Value read_tensor_file(std::span<const std::byte> bytes, const std::string& name) {
  return read(std::make_shared<MemorySource>(bytes), name).value;
}

Value read_tensor_file(const std::string& path) {
  return read(std::make_shared<FileSource>(path), path).value;
}

MappedFile map_tensor_file(const std::string& path) {
  return read(std::make_shared<MappedSource>(path), path);
}

bool is_safetensors(const std::string& path) {
  return path.ends_with(".safetensors");
}

void write_archive(const std::function<void(std::string_view)>& write, const Value& value) {
  // libtorch's writer throws out of its destructor where its sink fails: ours never says so, and what failed comes out
  // here.
  std::exception_ptr failure;
  PyTorchStreamWriter archive([&](const void* bytes, size_t count) {
    try {
      if (!failure) write({static_cast<const char*>(bytes), count});
    } catch (...) {
      failure = std::current_exception();
    }
    return count;
  });
  const Pickled pickled = pickle(value);
  std::string checksums;
  add(archive, checksums, "data.pkl", pickled.bytes.data(), pickled.bytes.size());
  const std::string order = "little";
  archive.writeRecord("byteorder", order.data(), order.size());
  for (size_t k = 0; k < pickled.tensors.size() && !failure; ++k) {
    const at::Tensor& tensor = pickled.tensors[k];
    add(archive, checksums, "data/" + std::to_string(k), tensor.const_data_ptr(), tensor.nbytes());
    let_go(tensor);
  }
  archive.writeRecord(kChecksums, checksums.data(), checksums.size());
  archive.writeEndOfFile();
  if (failure) std::rethrow_exception(failure);
}

void write_tensor_file(const std::string& path, const Value& value) {
  static_assert(std::endian::native == std::endian::little);
  AtomicFile file(path, "write_tensor_file");
  if (is_safetensors(path))
    write_safetensors(file, value, path);
  else
    write_archive([&](std::string_view bytes) { file.write(bytes); }, value);
  file.commit();
}

}  // namespace lockstep::archive
