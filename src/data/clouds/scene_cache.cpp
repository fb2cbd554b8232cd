// SPDX-License-Identifier: Apache-2.0
// An entry: a magic word, the checksum of all that follows, the number of strings, their lengths, the strings: the key,
// then the parts. Nothing is synced: what a crash leaves half-written has another checksum.
#include "data/clouds/scene_cache.h"

#include <ATen/ops/empty.h>
#include <zlib.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "data/formats/byte_cursor.h"
#include "lockstep/base/detail/atomic_file.h"
#include "lockstep/base/detail/digits.h"
#include "lockstep/base/detail/file.h"
#include "lockstep/base/detail/sha256.h"
#include "lockstep/base/log.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kMagic = 0x31656E6563534C;  // "LScene1"
/// To be raised where readers or voxels give other bits for the same files.
constexpr int kCacheVersion = 2;

template <class Value>
std::string bytes_of(std::span<const Value> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

template <class Value>
std::vector<Value> values(const std::string& bytes) {
  std::vector<Value> out(bytes.size() / sizeof(Value));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(Value));
  return out;
}

/// Rows of values; the first of the sizes is however many there are.
template <class Value>
at::Tensor tensor_of(const std::string& bytes, std::vector<int64_t> sizes, at::ScalarType type) {
  sizes[0] = static_cast<int64_t>(bytes.size() / sizeof(Value)) / (sizes.size() > 1 ? sizes[1] : 1);
  at::Tensor out = at::empty(sizes, type);
  std::memcpy(out.mutable_data_ptr<Value>(), bytes.data(), bytes.size());
  return out;
}

uint64_t checksum(std::span<const uint8_t> bytes) {
  return crc32_z(0, bytes.data(), bytes.size());
}

void add(uint64_t number, std::string& out) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::string encode(const std::string& key, const SceneCache::Parts& parts) {
  std::string body;
  add(1 + parts.size(), body);
  add(key.size(), body);
  for (const std::string& part : parts) add(part.size(), body);
  body += key;
  for (const std::string& part : parts) body += part;
  std::string out;
  add(kMagic, out);
  add(checksum({reinterpret_cast<const uint8_t*>(body.data()), body.size()}), out);
  return out += body;
}

/// Throws Error for what encode() has not made of this key.
SceneCache::Parts decode(const std::vector<uint8_t>& bytes, const std::string& key, const std::string& file) {
  ByteCursor at("cache", bytes, file);
  if (at.take<uint64_t>() != kMagic) at.wrong("this is no entry of a cache");
  const auto expected = at.take<uint64_t>();
  if (checksum(std::span(bytes).last(at.left())) != expected) at.wrong("the checksum does not match");
  std::vector<uint64_t> sizes(at.take<uint64_t>());
  for (uint64_t& size : sizes) size = at.take<uint64_t>();
  const auto* from = reinterpret_cast<const char*>(bytes.data()) + (bytes.size() - at.left());
  SceneCache::Parts parts;
  for (const uint64_t size : sizes) parts.emplace_back(std::exchange(from, from + size), size);
  if (parts.front() != key) at.wrong("this is the entry of another scene");
  parts.erase(parts.begin());
  return parts;
}

/// What killed writers have left.
void remove_old_partials(const fs::path& folder) {
  const auto before = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".partial" && entry.last_write_time(ignored) < before)
      fs::remove(entry.path(), ignored);
}

}  // namespace

SceneCache::SceneCache(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  require(!error, "cache", folder_.string(), " can't be made: ", error.message());
  remove_old_partials(folder_);
}

fs::path SceneCache::file_of(const std::string& key) const {
  Sha256 hash;
  hash.update(key.data(), key.size());
  return folder_ / (hash.hex() + ".scene");
}

std::optional<SceneCache::Parts> SceneCache::find(const std::string& key) const {
  const fs::path file = file_of(key);
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return std::nullopt;
  try {
    return decode(read_bytes(file, "cache"), key, file.string());
  } catch (const Error& error) {
    log_warning(error.what(), "; it is made anew");
    return std::nullopt;
  }
}

void SceneCache::keep(const std::string& key, const Parts& parts) const {
  try {
    AtomicFile out(file_of(key), "cache", AtomicFile::Sync::no);
    out.write(encode(key, parts));
    out.commit();
  } catch (const FileError& error) {
    if (!warned_.exchange(true)) log_warning(error.what(), "; training goes on without");
  }
}

Cloud cached_cloud(const SceneCache& cache, const std::string& source, int64_t channels,
                   const std::function<Cloud()>& read) {
  const std::string key = text("points ", kCacheVersion, " ", source);
  if (const auto parts = cache.find(key))
    return {.points = values<Point>((*parts)[0]),
            .features = values<float>((*parts)[1]),
            .channels = channels,
            .labels = values<int64_t>((*parts)[2])};
  Cloud cloud = read();
  if (!source.empty())
    cache.keep(key, {bytes_of<Point>(cloud.points), bytes_of<float>(cloud.features), bytes_of<int64_t>(cloud.labels)});
  return cloud;
}

Voxels cached_voxels(const SceneCache& cache, const std::string& source, double side, int64_t channels,
                     const std::function<Voxels()>& read) {
  const std::string key = text("voxels ", kCacheVersion, " ", digits_of(side), " ", source);
  if (const auto parts = cache.find(key))
    return {.coordinates = tensor_of<int32_t>((*parts)[0], {-1, 3}, at::kInt),
            .features = tensor_of<float>((*parts)[1], {-1, channels}, at::kFloat),
            .labels = tensor_of<int64_t>((*parts)[2], {-1}, at::kLong)};
  Voxels voxels = read();
  const auto bytes = []<class Value>(const at::Tensor& tensor, Value /*its type*/) {
    return bytes_of<Value>({tensor.const_data_ptr<Value>(), static_cast<size_t>(tensor.numel())});
  };
  if (!source.empty())
    cache.keep(
        key, {bytes(voxels.coordinates, int32_t{}), bytes(voxels.features, float{}), bytes(voxels.labels, int64_t{})});
  return voxels;
}

}  // namespace lockstep::data
