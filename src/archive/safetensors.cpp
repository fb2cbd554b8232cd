// SPDX-License-Identifier: Apache-2.0
// Eight bytes with the header's length, little-endian; the header, JSON; the tensors' bytes, row-major and
// little-endian.
#include "archive/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <set>

#include "archive/safetensors_header.h"
#include "lockstep/archive/safetensors.h"

namespace lockstep::archive {
namespace {

static_assert(std::endian::native == std::endian::little);

// The limit that other readers of the format have.
constexpr uint64_t kLongestHeader = 100'000'000;

template <class... Parts>
[[noreturn]] void damaged_safetensors(const std::string& name, const Parts&... parts) {
  throw DamagedFile(text("read_tensor_file: '", name, "' ", parts..., ", expected a whole safetensors file"));
}

void read_exactly(const Source& source, uint64_t at, void* into, size_t count, const std::string& name) {
  if (source.read(at, into, count, "") != count) damaged_safetensors(name, "is cut short");
}

}  // namespace

bool safetensors_hold(c10::ScalarType type) {
  return std::ranges::count(kDtypeNames, type, &DtypeName::type) > 0;
}

Value read_safetensors(const Source& source, const std::string& name) {
  uint64_t length = 0;
  if (source.size() < sizeof length) damaged_safetensors(name, "has ", source.size(), " bytes");
  read_exactly(source, 0, &length, sizeof length, name);
  const uint64_t behind = source.size() - sizeof length;
  if (length > behind) damaged_safetensors(name, "names a header of ", length, " bytes, and has ", behind);
  if (length > kLongestHeader) damaged_safetensors(name, "has a header of ", length, " bytes, more than 10^8");
  std::string json(length, '\0');
  read_exactly(source, sizeof length, json.data(), json.size(), name);
  Value::Dict out;
  for (TensorPlace& place : parse_safetensors_header(json, behind - length, name)) {
    const at::Tensor tensor = at::empty(place.sizes, place.type);
    auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
    read_exactly(source, sizeof length + length + place.begin, bytes, tensor.nbytes(), name);
    if (place.type == c10::kBool && std::any_of(bytes, bytes + tensor.nbytes(), [](uint8_t byte) { return byte > 1; }))
      damaged_safetensors(name, "has bytes other than 0 and 1 in tensor '", place.name, "' of bools");
    out.push_back({std::move(place.name), {tensor}});
  }
  return {std::move(out)};
}

void write_safetensors(AtomicFile& file, const Value& value, const std::string& name) {
  const auto check = [&](bool holds, const auto&... parts) {
    require(holds, "write_tensor_file", "'", name, "' would be a safetensors file, and ", parts...);
  };
  const auto* dict = std::get_if<Value::Dict>(&value.held);
  check(dict != nullptr, "the value is ", value.kind(), ", expected a dict of tensors");
  std::vector<std::pair<const std::string*, const at::Tensor*>> tensors;
  std::set<std::string_view> names;
  for (const auto& [key, entry] : *dict) {
    const auto* tensor = std::get_if<at::Tensor>(&entry.held);
    check(tensor != nullptr, "'", key, "' is ", entry.kind(), ", expected tensors alone");
    check(key != "__metadata__", "a tensor has the name '__metadata__', expected another one");
    check(names.insert(key).second, "two tensors have the name '", key, "', expected one");
    check(safetensors_hold(tensor->scalar_type()), "'", key, "' has dtype ", tensor->scalar_type(),
          ", for which the format has no name: expected another dtype, or a .pt file");
    tensors.emplace_back(&key, tensor);
  }
  // Wide elements first: each tensor then begins at a multiple of its element's size.
  std::ranges::sort(tensors, {}, [](const auto& item) {
    return std::pair(-static_cast<int64_t>(item.second->element_size()), std::string_view(*item.first));
  });
  std::vector<TensorPlace> places;
  uint64_t at = 0;
  for (const auto& [key, tensor] : tensors) {
    places.push_back({*key, tensor->scalar_type(), tensor->sizes().vec(), at, at + tensor->nbytes()});
    at = places.back().end;
  }
  const std::string header = safetensors_header(places, name);
  const uint64_t length = header.size();
  file.write({reinterpret_cast<const char*>(&length), sizeof length});
  file.write(header);
  for (const auto& [key, tensor] : tensors) {
    const auto bytes = tensor->detach().resolve_conj().resolve_neg().cpu().contiguous();
    file.write({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
  }
}

}  // namespace lockstep::archive
