// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/processes/messages/bundle_parcel.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "lockstep/context/draws.h"

namespace lockstep::parallel {
namespace {

// A parcel's numbers: the draws, how many tensors are features, which of these have gradients, and for each value the
// place of its features among them and its luggage.
constexpr size_t kFeatures = 1, kFlags = 2;

}  // namespace

Parcel parcel_of(const Bundle& bundle, Crossing& pass, int64_t to) {
  Parcel parcel;
  std::vector<int64_t> values;
  std::vector<at::Tensor> luggage_tensors;
  const auto names = bundle.names();
  const auto tensors = bundle.tensors();
  std::vector<at::Tensor> known;
  for (size_t n = 0; n < names.size(); ++n) {
    const CarriedType& type = bundle.type(names[n]);
    Luggage luggage = type.pack(bundle.value(names[n]), pass, to);
    const auto found = std::ranges::find_if(known, [&](const at::Tensor& one) { return one.is_same(tensors[n]); });
    values.push_back(found - known.begin());
    if (found == known.end()) known.push_back(tensors[n]);
    for (const size_t count : {luggage.numbers.size(), luggage.words.size(), luggage.tensors.size()})
      values.push_back(static_cast<int64_t>(count));
    values.insert(values.end(), luggage.numbers.begin(), luggage.numbers.end());
    parcel.words.insert(parcel.words.end(), {names[n], type.name});
    std::ranges::move(luggage.words, std::back_inserter(parcel.words));
    std::ranges::move(luggage.tensors, std::back_inserter(luggage_tensors));
  }
  parcel.numbers = {static_cast<int64_t>(Draws::current()->taken()), static_cast<int64_t>(known.size())};
  for (const at::Tensor& tensor : known) {
    parcel.numbers.push_back(tensor.defined() && tensor.requires_grad());
    parcel.tensors.push_back(tensor);
  }
  parcel.numbers.push_back(static_cast<int64_t>(names.size()));
  parcel.numbers.insert(parcel.numbers.end(), values.begin(), values.end());
  std::ranges::move(luggage_tensors, std::back_inserter(parcel.tensors));
  return parcel;
}

std::vector<at::Tensor> copies_of_features(const Parcel& parcel) {
  std::vector<at::Tensor> out(parcel.tensors.begin(), parcel.tensors.begin() + parcel.numbers[kFeatures]);
  for (at::Tensor& tensor : out)
    if (tensor.defined()) tensor = tensor.detach().clone();
  return out;
}

std::vector<at::Tensor> with_gradients(const Parcel& parcel) {
  std::vector<at::Tensor> out;
  for (int64_t t = 0; t < parcel.numbers[kFeatures]; ++t)
    if (parcel.numbers[kFlags + t] != 0) out.push_back(parcel.tensors[t]);
  return out;
}

Bundle bundle_of(const Parcel& parcel, Crossing& pass, int64_t from) {
  Draws::current()->go_on_at(static_cast<uint64_t>(parcel.numbers[0]));
  auto number = parcel.numbers.begin() + kFlags + parcel.numbers[kFeatures];
  auto word = parcel.words.begin();
  auto tensor = parcel.tensors.begin() + parcel.numbers[kFeatures];
  Bundle bundle;
  for (int64_t left = *number++; left > 0; --left) {
    const std::string& name = *word++;
    const CarriedType& type = find_carried_type(*word++);
    const at::Tensor& features = parcel.tensors[*number++];
    const int64_t numbers = *number++, words = *number++, tensors = *number++;
    const Luggage luggage{{number, number + numbers}, {word, word + words}, {tensor, tensor + tensors}};
    number += numbers;
    word += words;
    tensor += tensors;
    bundle.put(name, type.unpack(features, luggage, pass, from), type);
  }
  return bundle;
}

Bundle apart(const Bundle& bundle) {
  Crossing here(0), there(0);
  Parcel parcel = parcel_of(bundle, here, 0);
  for (int64_t t = 0; t < parcel.numbers[kFeatures]; ++t)
    if (parcel.tensors[t].defined()) parcel.tensors[t] = parcel.tensors[t].detach();
  return bundle_of(parcel, there, 0);
}

}  // namespace lockstep::parallel
