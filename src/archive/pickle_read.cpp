// SPDX-License-Identifier: Apache-2.0
// A pickle is a program for a machine with a stack and a memo. Objects are shared while it runs (a dict is filled after
// it was memorised), so they live behind pointers here and become plain values at the end.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "archive/pickle.h"
#include "archive/pickle_codes.h"

namespace lockstep::archive {
namespace {

constexpr int kDeepest = 100;

struct Object;
using Ref = std::shared_ptr<Object>;

struct Object {
  enum class Kind : uint8_t { plain, list, dict, mark, function, storage };
  Kind kind = Kind::plain;
  Value value{};             // plain
  std::vector<Ref> items{};  // of a list; of a dict: key, value, key, value, ...
  std::string name{};        // of a function or class: "torch FloatStorage"
  c10::Storage storage{};
  c10::ScalarType type = c10::kFloat;
};

template <class T>
Ref plain(T value) {
  return std::make_shared<Object>(Object{.value = Value{std::move(value)}});
}

class Unpickler {
 public:
  Unpickler(std::span<const std::byte> bytes, const ReadStorage& read_storage, const std::string& name)
      : bytes_(bytes), read_storage_(read_storage), name_(name) {}
  Unpickler(const Unpickler&) = delete;
  Unpickler& operator=(const Unpickler&) = delete;
  // A list may hold itself, or lists a million deep: none is destroyed by another.
  ~Unpickler() {
    for (const Ref& container : containers_) container->items.clear();
  }

  Value run() {
    for (;;) {
      const auto code = static_cast<Code>(number<uint8_t>());
      if (code == Code::stop) break;
      step(code);
    }
    return to_value(*pop(), 0);
  }

 private:
  template <class... Parts>
  void check(bool holds, const Parts&... parts) const {
    require(holds, "read_tensor_file", "'", name_, "' ", parts...);
  }

  const std::byte* take(size_t count) {
    check(count <= bytes_.size() - at_, "ends within its pickle, expected a whole file of torch.save");
    at_ += count;
    return bytes_.data() + at_ - count;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string line() {
    std::string out;
    for (char c; (c = number<char>()) != '\n';) out += c;
    return out;
  }
  std::string word(size_t count) { return {reinterpret_cast<const char*>(take(count)), count}; }

  Ref pop() {
    check(!stack_.empty(), "takes from an empty stack in its pickle, expected a file of torch.save");
    Ref top = std::move(stack_.back());
    stack_.pop_back();
    return top;
  }
  void push(Ref object) { stack_.push_back(std::move(object)); }
  void push_container(Object::Kind kind, std::vector<Ref> items) {
    push(containers_.emplace_back(std::make_shared<Object>(Object{.kind = kind, .items = std::move(items)})));
  }
  void push_list(std::vector<Ref> items) { push_container(Object::Kind::list, std::move(items)); }
  std::vector<Ref> pop_some(size_t count) {
    std::vector<Ref> items(count);
    while (count > 0) items[--count] = pop();
    return items;
  }
  std::vector<Ref> pop_to_mark() {
    std::vector<Ref> items;
    for (Ref top = pop(); top->kind != Object::Kind::mark; top = pop()) items.push_back(std::move(top));
    std::ranges::reverse(items);
    return items;
  }
  // Onto the list or dict below.
  void extend(const std::vector<Ref>& items, Object::Kind kind) {
    check(!stack_.empty() && stack_.back()->kind == kind, "fills what is no list or dict in its pickle");
    auto& into = stack_.back()->items;
    into.insert(into.end(), items.begin(), items.end());
  }
  void get(uint32_t slot) {
    const auto found = memo_.find(slot);
    check(found != memo_.end(), "reads an empty memo in its pickle");
    push(found->second);
  }
  void put(uint32_t slot) {
    check(!stack_.empty(), "stores an empty stack in its pickle");
    memo_[slot] = stack_.back();
  }

  void step(Code code);
  int64_t long1();
  void reduce();
  void refuse(const std::string& name) const;
  void build();
  void load_storage();
  Ref rebuild_tensor(const std::vector<Ref>& arguments);
  void count(size_t text_bytes);
  std::vector<int64_t> sizes(const Object& tuple) const;
  int64_t integer(const Object& object) const;
  const std::string& string(const Object& object) const;
  Value to_value(const Object& object, int depth);

  std::span<const std::byte> bytes_;
  const ReadStorage& read_storage_;
  const std::string& name_;
  size_t at_ = 0;
  size_t values_ = 0;            // made of the objects so far
  std::vector<Ref> containers_;  // all lists and dicts
  std::vector<Ref> stack_;
  std::unordered_map<uint32_t, Ref> memo_;
};

void Unpickler::step(Code code) {
  switch (code) {
    case Code::proto: {
      const int version = number<uint8_t>();
      check(version == 2, "has a pickle of protocol ", version, ", expected 2, which torch.save writes by default");
      return;
    }
    case Code::mark:
      return push(std::make_shared<Object>(Object{.kind = Object::Kind::mark}));
    case Code::none:
      return push(plain(std::monostate()));
    case Code::newtrue:
      return push(plain(true));
    case Code::newfalse:
      return push(plain(false));
    case Code::binint:
      return push(plain(int64_t{number<int32_t>()}));
    case Code::binint1:
      return push(plain(int64_t{number<uint8_t>()}));
    case Code::binint2:
      return push(plain(int64_t{number<uint16_t>()}));
    case Code::long1:
      return push(plain(long1()));
    case Code::binfloat:
      return push(plain(std::bit_cast<double>(__builtin_bswap64(number<uint64_t>()))));
    case Code::binunicode:
      return push(plain(word(number<uint32_t>())));
    case Code::empty_list:
    case Code::empty_tuple:
      return push_list({});
    case Code::tuple:
      return push_list(pop_to_mark());
    case Code::tuple1:
      return push_list(pop_some(1));
    case Code::tuple2:
      return push_list(pop_some(2));
    case Code::tuple3:
      return push_list(pop_some(3));
    case Code::append:
      return extend(pop_some(1), Object::Kind::list);
    case Code::appends:
      return extend(pop_to_mark(), Object::Kind::list);
    case Code::empty_dict:
      return push_container(Object::Kind::dict, {});
    case Code::setitem:
      return extend(pop_some(2), Object::Kind::dict);
    case Code::setitems:
      return extend(pop_to_mark(), Object::Kind::dict);
    case Code::global: {
      std::string module = line();
      return push(
          std::make_shared<Object>(Object{.kind = Object::Kind::function, .name = std::move(module) + " " + line()}));
    }
    case Code::reduce:
      return reduce();
    case Code::newobj:
      pop();
      return refuse(pop()->name);
    case Code::build:
      return build();
    case Code::binpersid:
      return load_storage();
    case Code::binput:
      return put(number<uint8_t>());
    case Code::long_binput:
      return put(number<uint32_t>());
    case Code::binget:
      return get(number<uint8_t>());
    case Code::long_binget:
      return get(number<uint32_t>());
    default:
      check(false, "has operation ", static_cast<int>(code), " in its pickle, expected those of torch.save");
  }
}

// Two's complement, of as few bytes as the number needs.
int64_t Unpickler::long1() {
  const size_t count = number<uint8_t>();
  check(count <= 8, "holds an integer of ", count, " bytes, expected at most 8");
  uint64_t value = 0;
  const std::byte* from = take(count);
  for (size_t i = 0; i < count; ++i) value |= std::to_integer<uint64_t>(from[i]) << (8 * i);
  if (count > 0 && count < 8 && (std::to_integer<int>(from[count - 1]) & 0x80) != 0)
    value |= ~uint64_t{0} << (8 * count);
  return static_cast<int64_t>(value);
}

void Unpickler::reduce() {
  const Ref arguments = pop();
  const Ref function = pop();
  check(function->kind == Object::Kind::function && arguments->kind == Object::Kind::list,
        "calls what is no function in its pickle");
  const std::string& name = function->name;
  if (name == "collections OrderedDict" && arguments->items.empty()) return push_container(Object::Kind::dict, {});
  if (name == "torch._utils _rebuild_tensor_v2") return push(rebuild_tensor(arguments->items));
  if (name == "torch._utils _rebuild_parameter" && !arguments->items.empty()) return push(arguments->items[0]);
  if (name == "torch Size" && arguments->items.size() == 1) return push(arguments->items[0]);
  refuse(name);
}

void Unpickler::refuse(const std::string& name) const {
  check(false, "holds an object of Python's '", name,
        "', expected dicts, lists, numbers, strings and dense tensors: save a state_dict()");
}

// An OrderedDict's attributes (a state_dict has `_metadata`) are of no use here.
void Unpickler::build() {
  pop();
  check(!stack_.empty() && stack_.back()->kind == Object::Kind::dict,
        "holds an object of a Python class, expected dicts, lists, numbers, strings and tensors");
}

// ("storage", torch.FloatStorage, key, device, elements)
void Unpickler::load_storage() {
  const Ref id = pop();
  check(id->kind == Object::Kind::list && id->items.size() == 5 && string(*id->items[0]) == "storage",
        "refers to what is no storage");
  const std::string type_name = id->items[1]->name;
  const auto type = std::ranges::find_if(kStorageNames, [&](const StorageName& storage) {
    return type_name.starts_with("torch ") && storage.name == std::string_view(type_name).substr(6);
  });
  check(type != kStorageNames.end(), "holds a tensor of '", type_name,
        "', expected float32, float64, float16, bfloat16, an integer, bool or complex");
  const int64_t count = integer(*id->items[4]);
  const size_t element = c10::elementSize(type->type);
  check(count >= 0 && static_cast<uint64_t>(count) <= SIZE_MAX / 2 / element, "holds a storage of ", count,
        " elements");
  const auto object = std::make_shared<Object>(Object{.kind = Object::Kind::storage, .type = type->type});
  object->storage = read_storage_(string(*id->items[2]), count * element);
  push(object);
}

// (storage, offset, sizes, strides, requires_grad, backward_hooks, metadata); the last only where there is some.
Ref Unpickler::rebuild_tensor(const std::vector<Ref>& arguments) {
  check(arguments.size() >= 4 && arguments[0]->kind == Object::Kind::storage, "describes a tensor without a storage");
  check(arguments.size() < 7 || arguments[6]->items.empty(),
        "holds a conjugated or negated view, expected its values: save tensor.resolve_conj().resolve_neg()");
  const Object& from = *arguments[0];
  const int64_t offset = integer(*arguments[1]);
  const auto shape = sizes(*arguments[2]), strides = sizes(*arguments[3]);
  check(shape.size() == strides.size() && offset >= 0, "describes a tensor of ", shape.size(), " sizes and ",
        strides.size(), " strides at ", offset);
  const auto elements = from.storage.nbytes() / c10::elementSize(from.type);
  // The last element that it touches, in a type that cannot overflow.
  double last = static_cast<double>(offset);
  bool empty = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    check(shape[d] >= 0 && strides[d] >= 0, "describes a tensor of size ", shape[d], " and stride ", strides[d]);
    empty |= shape[d] == 0;
    last += static_cast<double>(shape[d] - 1) * static_cast<double>(strides[d]);
  }
  check(empty || last < static_cast<double>(elements), "describes a tensor that reaches past its storage of ", elements,
        " elements");
  return plain(at::empty({0}, from.type).set_(from.storage, offset, shape, strides));
}

std::vector<int64_t> Unpickler::sizes(const Object& tuple) const {
  check(tuple.kind == Object::Kind::list, "describes a tensor without sizes");
  std::vector<int64_t> out;
  for (const auto& item : tuple.items) out.push_back(integer(*item));
  return out;
}

int64_t Unpickler::integer(const Object& object) const {
  const auto* number = std::get_if<int64_t>(&object.value.held);
  check(number != nullptr, "has no integer where a tensor needs one");
  return *number;
}

const std::string& Unpickler::string(const Object& object) const {
  const auto* held = std::get_if<std::string>(&object.value.held);
  check(held != nullptr, "has no text where a tensor needs one");
  return *held;
}

// What the memo holds once may stand in many places, and becomes a value in each: lists of lists of lists explode.
void Unpickler::count(size_t text_bytes) {
  constexpr size_t kValuesPerByte = 16, kAnyway = 1000, kTextOfOne = 64;
  values_ += 1 + text_bytes / kTextOfOne;
  check(values_ <= kValuesPerByte * bytes_.size() + kAnyway, "repeats its values without end, expected at most ",
        kValuesPerByte, " a byte of its pickle");
}

Value Unpickler::to_value(const Object& object, int depth) {
  check(depth < kDeepest, "nests more than ", kDeepest, " values");
  const auto* held = std::get_if<std::string>(&object.value.held);
  count(held == nullptr ? 0 : held->size());
  if (object.kind == Object::Kind::plain) return object.value;
  if (object.kind == Object::Kind::list) {
    Value::List list;
    for (const auto& item : object.items) list.push_back(to_value(*item, depth + 1));
    return {std::move(list)};
  }
  check(object.kind == Object::Kind::dict, "holds the Python object '", object.name,
        "', expected dicts, lists, numbers, strings and tensors");
  check(object.items.size() % 2 == 0, "has a key without a value");
  Value::Dict dict;
  for (size_t i = 0; i < object.items.size(); i += 2) {
    const auto& key = object.items[i]->value;
    count(std::holds_alternative<std::string>(key.held) ? string(*object.items[i]).size() : 0);
    if (const auto* number = std::get_if<int64_t>(&key.held))  // optimisers number their parameters
      dict.push_back({std::to_string(*number), to_value(*object.items[i + 1], depth + 1)});
    else
      dict.push_back({string(*object.items[i]), to_value(*object.items[i + 1], depth + 1)});
  }
  return {std::move(dict)};
}

}  // namespace

Value unpickle(std::span<const std::byte> bytes, const ReadStorage& read_storage, const std::string& name) {
  return Unpickler(bytes, read_storage, name).run();
}

}  // namespace lockstep::archive
