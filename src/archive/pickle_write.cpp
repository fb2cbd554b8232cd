// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>

#include "archive/pickle.h"
#include "archive/pickle_codes.h"

namespace lockstep::archive {
namespace {

std::string_view storage_name(c10::ScalarType type) {
  const auto found = std::ranges::find(kStorageNames, type, &StorageName::type);
  require(found != kStorageNames.end(), "write_tensor_file", "a tensor has dtype ", type,
          ", expected float32, float64, float16, bfloat16, an integer, bool or complex");
  return found->name;
}

// A tensor whose storage is all its own elements, in order.
at::Tensor packed(const at::Tensor& tensor) {
  // A conjugated or negated view has the bytes of its base.
  const auto here = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
  const bool whole = here.storage_offset() == 0 && here.storage().nbytes() == here.nbytes();
  return whole ? here : here.clone(at::MemoryFormat::Contiguous);
}

class Pickler {
 public:
  Pickled run(const Value& value) {
    code(Code::proto);
    out_.bytes += '\2';
    std::visit([&](const auto& held) { put(held); }, value.held);
    code(Code::stop);
    return std::move(out_);
  }

 private:
  void code(Code code) { out_.bytes += static_cast<char>(code); }

  template <class T>
  void raw(T number) {  // little-endian, as this machine is
    char bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    out_.bytes.append(bytes, sizeof number);
  }

  void global(std::string_view module, std::string_view name) {
    code(Code::global);
    out_.bytes.append(module).append("\n").append(name).append("\n");
  }

  void put(std::monostate) { code(Code::none); }
  void put(bool value) { code(value ? Code::newtrue : Code::newfalse); }
  void put(int64_t value) {
    if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
      code(Code::binint);
      raw(static_cast<int32_t>(value));
    } else {
      code(Code::long1);
      out_.bytes += '\10';
      raw(value);
    }
  }
  void put(double value) {
    code(Code::binfloat);
    raw(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
  }
  void put(const std::string& value) {
    code(Code::binunicode);
    raw(static_cast<uint32_t>(value.size()));
    out_.bytes += value;
  }
  void put(const Value::List& list) {
    code(Code::empty_list);
    code(Code::mark);
    for (const auto& item : list) std::visit([&](const auto& held) { put(held); }, item.held);
    code(Code::appends);
  }
  void put(const Value::Dict& dict) {
    code(Code::empty_dict);
    code(Code::mark);
    for (const auto& [key, item] : dict) {
      put(key);
      std::visit([&](const auto& held) { put(held); }, item.held);
    }
    code(Code::setitems);
  }
  void put(c10::IntArrayRef numbers) {
    code(Code::mark);
    for (const int64_t number : numbers) put(number);
    code(Code::tuple);
  }

  // torch._utils._rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, backward_hooks)
  void put(const at::Tensor& tensor) {
    const auto stored = packed(tensor);
    global("torch._utils", "_rebuild_tensor_v2");
    code(Code::mark);
    code(Code::mark);
    put(std::string("storage"));
    global("torch", storage_name(stored.scalar_type()));
    put(std::to_string(number_of(stored)));
    put(std::string("cpu"));
    put(stored.numel());
    code(Code::tuple);
    code(Code::binpersid);
    put(int64_t{0});
    put(stored.sizes());
    put(stored.strides());
    code(Code::newfalse);
    global("collections", "OrderedDict");
    code(Code::empty_tuple);
    code(Code::reduce);
    code(Code::tuple);
    code(Code::reduce);
  }

  // Tied weights stay tied.
  size_t number_of(const at::Tensor& stored) {
    const auto [found, added] = numbers_.try_emplace(stored.storage().unsafeGetStorageImpl(), out_.tensors.size());
    if (added) out_.tensors.push_back(stored);
    return found->second;
  }

  Pickled out_;
  std::map<const c10::StorageImpl*, size_t> numbers_;
};

}  // namespace

Pickled pickle(const Value& value) {
  return Pickler().run(value);
}

}  // namespace lockstep::archive
