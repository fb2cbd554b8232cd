// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/processes/parcel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <span>

namespace lockstep::parallel {
namespace {

// The first message has this size, so that the other side can wait for it: most labels fit.
constexpr int64_t kLabelWords = 256;
constexpr int64_t kBoundary = 64;

/// The memory that a tensor takes up, from its first element to its last.
struct Extent {
  int64_t lead;  // elements from a boundary of 64 bytes to the first one
  int64_t span;
};

Extent extent_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {0, 0};
  int64_t span = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) span += (tensor.size(d) - 1) * tensor.stride(d);
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kBoundary;
  return {static_cast<int64_t>(address / tensor.element_size()), span};
}

at::Tensor memory_of(const at::Tensor& tensor) {
  return tensor.detach().as_strided({extent_of(tensor).span}, {1}, tensor.storage_offset());
}

void put_text(std::vector<int64_t>& label, const std::string& text) {
  label.push_back(static_cast<int64_t>(text.size()));
  for (size_t at = 0; at < text.size(); at += sizeof(int64_t)) {
    int64_t word = 0;
    std::copy_n(text.begin() + static_cast<ptrdiff_t>(at), std::min(sizeof word, text.size() - at),
                reinterpret_cast<char*>(&word));
    label.push_back(word);
  }
}

/// All that the other side must know before it can receive the tensors.
std::vector<int64_t> label_of(const Parcel& parcel) {
  std::vector<int64_t> label{0, static_cast<int64_t>(parcel.numbers.size())};
  label.insert(label.end(), parcel.numbers.begin(), parcel.numbers.end());
  label.push_back(static_cast<int64_t>(parcel.words.size()));
  for (const std::string& word : parcel.words) put_text(label, word);
  label.push_back(static_cast<int64_t>(parcel.tensors.size()));
  for (const at::Tensor& tensor : parcel.tensors) {
    label.push_back(tensor.defined() ? 1 : 0);
    if (!tensor.defined()) continue;
    const Extent extent = extent_of(tensor);
    label.insert(label.end(), {static_cast<int64_t>(tensor.scalar_type()), extent.lead, extent.span, tensor.dim()});
    label.insert(label.end(), tensor.sizes().begin(), tensor.sizes().end());
    label.insert(label.end(), tensor.strides().begin(), tensor.strides().end());
  }
  label[0] = static_cast<int64_t>(label.size());
  label.resize(std::max<int64_t>(kLabelWords, label[0]), 0);
  return label;
}

class LabelReader {
 public:
  explicit LabelReader(std::vector<int64_t> label) : label_(std::move(label)) {}

  int64_t number() { return label_.at(at_++); }
  std::vector<int64_t> numbers(int64_t count) {
    std::vector<int64_t> out;
    for (int64_t n = 0; n < count; ++n) out.push_back(number());
    return out;
  }
  std::string text() {
    std::string out(number(), '\0');
    const auto words = numbers((static_cast<int64_t>(out.size()) + 7) / 8);
    std::copy_n(reinterpret_cast<const char*>(words.data()), out.size(), out.begin());
    return out;
  }

 private:
  std::vector<int64_t> label_;
  size_t at_ = 1;
};

}  // namespace

std::vector<comm::Work> post(const comm::Group& group, int to, int tag, const Parcel& parcel) {
  const at::NoGradGuard no_grad;
  const auto label = at::tensor(label_of(parcel), at::kLong);
  std::vector<comm::Work> works{group.send(label.narrow(0, 0, kLabelWords), to, tag)};
  if (const int64_t rest = label.numel() - kLabelWords; rest > 0)
    works.push_back(group.send(label.narrow(0, kLabelWords, rest), to, tag));
  for (const at::Tensor& tensor : parcel.tensors)
    if (tensor.defined() && tensor.numel() > 0) works.push_back(group.send(memory_of(tensor), to, tag));
  return works;
}

Parcel receive(const comm::Group& group, int from, int tag) {
  const at::NoGradGuard no_grad;
  const auto first = at::empty({kLabelWords}, at::kLong);
  group.recv(first, from, tag).wait();
  const std::span<const int64_t> front(first.const_data_ptr<int64_t>(), kLabelWords);
  std::vector<int64_t> label(front.begin(), front.end());
  if (const int64_t rest = label[0] - kLabelWords; rest > 0) {
    const auto second = at::empty({rest}, at::kLong);
    group.recv(second, from, tag).wait();
    label.insert(label.end(), second.const_data_ptr<int64_t>(), second.const_data_ptr<int64_t>() + rest);
  }
  LabelReader reader(std::move(label));
  Parcel parcel;
  parcel.numbers = reader.numbers(reader.number());
  for (int64_t words = reader.number(); words > 0; --words) parcel.words.push_back(reader.text());
  std::vector<comm::Work> works;
  for (int64_t tensors = reader.number(); tensors > 0; --tensors) {
    at::Tensor& tensor = parcel.tensors.emplace_back();
    if (reader.number() == 0) continue;
    const auto dtype = static_cast<at::ScalarType>(reader.number());
    const int64_t lead = reader.number(), span = reader.number(), dimensions = reader.number();
    const auto sizes = reader.numbers(dimensions), strides = reader.numbers(dimensions);
    const at::AutoDispatchBelowADInplaceOrView no_view;  // so that the next stage may write to it
    const at::Tensor memory = at::empty({lead + span}, dtype);
    tensor = memory.as_strided(sizes, strides, lead);
    if (span > 0) works.push_back(group.recv(memory.narrow(0, lead, span), from, tag));
  }
  for (comm::Work& work : works) work.wait();
  return parcel;
}

}  // namespace lockstep::parallel
