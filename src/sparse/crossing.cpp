// SPDX-License-Identifier: Apache-2.0
// Sparse tensors and fields on their way to another part of a network, in another process. A coordinate manager is one
// object there too: what it has come to know since is sent once to each process, and what it is asked for afterwards
// has the keys that it would have here.
#include "lockstep/context/detail/crossing.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/sparse/tensor_field.h"

namespace lockstep::sparse {
namespace {

using Snapshot = CoordinateManager::Snapshot;

/// One that processes have in common.
struct CommonManager {
  static constexpr int64_t kOfInput = -1;

  int64_t part;  // that has made it, or kOfInput
  int64_t number;
  CoordinateManagerPtr manager;
  std::set<CoordinateMapKey> from_input;                  // which all have
  std::map<int64_t, std::set<CoordinateMapKey>> known{};  // by each part that something went to or came from

  bool knows(int64_t to, const CoordinateMapKey& key) { return from_input.contains(key) || known[to].contains(key); }
};

struct Notes {
  std::vector<CommonManager> managers;
  std::vector<SparseTensor> tensors;  // of the network's input
  std::vector<TensorField> fields;

  CommonManager* find(const CoordinateManagerPtr& manager) {
    const auto found = std::ranges::find(managers, manager, &CommonManager::manager);
    return found == managers.end() ? nullptr : &*found;
  }
  int64_t made_by(int64_t part) const { return std::ranges::count(managers, part, &CommonManager::part); }
};

void check_own(const CoordinateManagerPtr& manager) {
  require(manager != global_coordinate_manager(), "forward",
          "a value that goes to another process belongs to the global coordinate manager, whose maps are those of all ",
          "replicas here, expected one of its own: leave set_global_coordinate_manager out, or use --split data");
}

void enter(const CoordinateManagerPtr& manager, Crossing& pass) {
  check_own(manager);
  Notes& notes = pass.notes<Notes>();
  if (notes.find(manager) != nullptr) return;
  const auto keys = manager->keys();
  notes.managers.push_back({CommonManager::kOfInput, notes.made_by(CommonManager::kOfInput), manager,
                            std::set<CoordinateMapKey>(keys.begin(), keys.end())});
}

/// Numbers, words and tensors in the order in which Reader takes them.
class Writer {
 public:
  void number(int64_t value) { luggage_.numbers.push_back(value); }
  void values(const std::vector<int64_t>& all) {
    number(static_cast<int64_t>(all.size()));
    luggage_.numbers.insert(luggage_.numbers.end(), all.begin(), all.end());
  }
  void word(std::string value) { luggage_.words.push_back(std::move(value)); }
  void tensor(at::Tensor value) { luggage_.tensors.push_back(std::move(value)); }
  void key(const CoordinateMapKey& key) {
    values(key.tensor_stride);
    word(key.label);
    number(key.number);
  }
  void geometry(const LayerGeometry& geometry) {
    number(static_cast<int64_t>(geometry.region.type));
    for (const auto* list :
         {&geometry.region.size, &geometry.region.dilation, &geometry.region.custom, &geometry.stride})
      values(*list);
    number(geometry.transposed | geometry.generative << 1 | geometry.expand_coordinates << 2);
  }

  Luggage take() { return std::move(luggage_); }

 private:
  Luggage luggage_;
};

class Reader {
 public:
  explicit Reader(const Luggage& luggage) : luggage_(luggage) {}

  int64_t number() { return luggage_.numbers.at(number_++); }
  std::vector<int64_t> values() {
    std::vector<int64_t> all(number());
    for (int64_t& value : all) value = number();
    return all;
  }
  const std::string& word() { return luggage_.words.at(word_++); }
  const at::Tensor& tensor() { return luggage_.tensors.at(tensor_++); }
  CoordinateMapKey key() {
    CoordinateMapKey key;
    key.tensor_stride = values();
    key.label = word();
    key.number = number();
    return key;
  }
  LayerGeometry geometry() {
    LayerGeometry geometry;
    geometry.region.type = static_cast<RegionType>(number());
    for (auto* list : {&geometry.region.size, &geometry.region.dilation, &geometry.region.custom, &geometry.stride})
      *list = values();
    const int64_t flags = number();
    geometry.transposed = (flags & 1) != 0;
    geometry.generative = (flags & 2) != 0;
    geometry.expand_coordinates = (flags & 4) != 0;
    return geometry;
  }

 private:
  const Luggage& luggage_;
  size_t number_ = 0, word_ = 0, tensor_ = 0;
};

// Keys go by their place among all of the manager's; coordinates go where they are not known yet.
void pack_manager(const CoordinateManagerPtr& manager, Crossing& pass, int64_t to, Writer& out) {
  check_own(manager);
  Notes& notes = pass.notes<Notes>();
  if (notes.find(manager) == nullptr) notes.managers.push_back({pass.part(), notes.made_by(pass.part()), manager, {}});
  CommonManager& common = *notes.find(manager);
  const Snapshot snapshot = manager->snapshot();
  std::map<CoordinateMapKey, int64_t> places;
  for (const int64_t number : {common.part, common.number, manager->dimension(), snapshot.batch_size, snapshot.counted,
                               static_cast<int64_t>(snapshot.maps.size())})
    out.number(number);
  for (const auto& [key, map] : snapshot.maps) {
    places.emplace(key, std::ssize(places));
    out.key(key);
    const bool is_known = common.knows(to, key);
    out.number(is_known);
    if (is_known) continue;
    out.tensor(map->coordinates());
    common.known[to].insert(key);
  }
  out.number(std::ssize(snapshot.strided));
  for (const auto& each : snapshot.strided) {
    out.number(places.at(each.from));
    out.values(each.stride);
    out.number(places.at(each.to));
  }
  out.number(std::ssize(snapshot.expanded));
  for (const auto& each : snapshot.expanded) {
    out.number(places.at(each.from));
    out.geometry(each.geometry);
    out.number(places.at(each.to));
  }
  out.number(std::ssize(snapshot.united));
  for (const auto& each : snapshot.united) {
    std::vector<int64_t> from;
    for (const CoordinateMapKey& key : each.from) from.push_back(places.at(key));
    out.values(from);
    out.number(places.at(each.to));
  }
}

CoordinateManagerPtr unpack_manager(Reader& in, Crossing& pass, int64_t from) {
  Notes& notes = pass.notes<Notes>();
  const int64_t part = in.number(), number = in.number(), dimension = in.number();
  auto found = std::ranges::find_if(
      notes.managers, [&](const CommonManager& common) { return common.part == part && common.number == number; });
  if (found == notes.managers.end())
    found = notes.managers.insert(found, {part, number, std::make_shared<CoordinateManager>(dimension), {}});
  Snapshot snapshot;
  snapshot.batch_size = in.number();
  snapshot.counted = in.number();
  std::vector<CoordinateMapKey> keys(in.number());
  for (CoordinateMapKey& key : keys) {
    key = in.key();
    if (in.number() != 0) continue;
    const at::Tensor& coordinates = in.tensor();
    if (!found->manager->contains(key)) snapshot.maps.emplace_back(key, CoordinateMap::insert(coordinates).map);
  }
  found->known[from].insert(keys.begin(), keys.end());
  for (int64_t left = in.number(); left > 0; --left) {
    const CoordinateMapKey& begin = keys.at(in.number());
    const AxisValues stride = in.values();
    snapshot.strided.push_back({begin, stride, keys.at(in.number())});
  }
  for (int64_t left = in.number(); left > 0; --left) {
    const CoordinateMapKey& begin = keys.at(in.number());
    const LayerGeometry geometry = in.geometry();
    snapshot.expanded.push_back({begin, geometry, keys.at(in.number())});
  }
  for (int64_t left = in.number(); left > 0; --left) {
    std::vector<CoordinateMapKey> begins;
    for (const int64_t place : in.values()) begins.push_back(keys.at(place));
    snapshot.united.push_back({begins, keys.at(in.number())});
  }
  found->manager->merge(snapshot);
  return found->manager;
}

}  // namespace

void lockstep_enter(const SparseTensor& x, Crossing& pass) {
  if (!x.defined()) return;
  enter(x.manager(), pass);
  pass.notes<Notes>().tensors.push_back(x.detach());
}

void lockstep_enter(const TensorField& x, Crossing& pass) {
  if (!x.features().defined()) return;
  enter(x.manager(), pass);
  pass.notes<Notes>().fields.push_back(x.with_features(x.features().detach()));
}

Luggage lockstep_pack(const SparseTensor& x, Crossing& pass, int64_t to) {
  Writer out;
  out.number(x.defined());
  if (!x.defined()) return out.take();
  pack_manager(x.manager(), pass, to, out);
  out.key(x.key());
  return out.take();
}

SparseTensor lockstep_unpack(const at::Tensor& features, const Luggage& luggage, Crossing& pass, int64_t from,
                             const SparseTensor* /*type*/) {
  Reader in(luggage);
  if (in.number() == 0) return {};
  const CoordinateManagerPtr manager = unpack_manager(in, pass, from);
  const CoordinateMapKey key = in.key();
  for (const SparseTensor& input : pass.notes<Notes>().tensors)  // it knows of which rows it was made
    if (input.manager() == manager && input.key() == key) return input.with_features(features);
  return {features, key, manager};
}

// A field's points are its own; mostly they are those of the input.
Luggage lockstep_pack(const TensorField& x, Crossing& pass, int64_t to) {
  Writer out;
  out.number(x.features().defined());
  if (!x.features().defined()) return out.take();
  pack_manager(x.manager(), pass, to, out);
  const auto& inputs = pass.notes<Notes>().fields;
  const auto known = std::ranges::find_if(
      inputs, [&](const TensorField& input) { return input.coordinates().is_same(x.coordinates()); });
  out.number(known == inputs.end() ? -1 : known - inputs.begin());
  if (known == inputs.end()) out.tensor(x.coordinates());
  return out.take();
}

TensorField lockstep_unpack(const at::Tensor& features, const Luggage& luggage, Crossing& pass, int64_t from,
                            const TensorField* /*type*/) {
  Reader in(luggage);
  if (in.number() == 0) return {};
  const CoordinateManagerPtr manager = unpack_manager(in, pass, from);
  const int64_t input = in.number();
  if (input >= 0) return pass.notes<Notes>().fields.at(input).with_features(features);
  return {features, in.tensor(), manager};
}

}  // namespace lockstep::sparse
