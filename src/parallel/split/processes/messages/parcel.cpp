// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/processes/messages/parcel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kBoundary = 64;
// Larger tensors are messages of their own, which nobody copies.
constexpr int64_t kCopiedBytes = 256 * 1024;
constexpr int64_t kWord = sizeof(int64_t);

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

bool is_copied(const Extent& extent, int64_t element_size) {
  return extent.span * element_size <= kCopiedBytes;
}

// In words: what is put together is read by the word.
int64_t words_of(int64_t bytes) {
  return (bytes + kWord - 1) / kWord;
}

void put_text(std::vector<int64_t>& letter, const std::string& text) {
  letter.push_back(static_cast<int64_t>(text.size()));
  for (size_t at = 0; at < text.size(); at += sizeof(int64_t)) {
    int64_t word = 0;
    std::copy_n(text.begin() + static_cast<ptrdiff_t>(at), std::min(sizeof word, text.size() - at),
                reinterpret_cast<char*>(&word));
    letter.push_back(word);
  }
}

/// All that the other side must know before it can receive the tensors, and the small ones. The first word says how
/// many there are.
std::vector<int64_t> letter_of(const Parcel& parcel) {
  std::vector<int64_t> letter{0, static_cast<int64_t>(parcel.numbers.size())};
  letter.insert(letter.end(), parcel.numbers.begin(), parcel.numbers.end());
  letter.push_back(static_cast<int64_t>(parcel.words.size()));
  for (const std::string& word : parcel.words) put_text(letter, word);
  letter.push_back(static_cast<int64_t>(parcel.tensors.size()));
  for (const at::Tensor& tensor : parcel.tensors) {
    letter.push_back(tensor.defined() ? 1 : 0);
    if (!tensor.defined()) continue;
    const Extent extent = extent_of(tensor);
    letter.insert(letter.end(), {static_cast<int64_t>(tensor.scalar_type()), extent.lead, extent.span, tensor.dim()});
    letter.insert(letter.end(), tensor.sizes().begin(), tensor.sizes().end());
    letter.insert(letter.end(), tensor.strides().begin(), tensor.strides().end());
    const int64_t bytes = extent.span * static_cast<int64_t>(tensor.element_size());
    if (bytes == 0 || !is_copied(extent, static_cast<int64_t>(tensor.element_size()))) continue;
    const size_t at = letter.size();
    letter.resize(at + words_of(bytes), 0);
    std::memcpy(&letter[at], tensor.const_data_ptr(), bytes);
  }
  letter[0] = static_cast<int64_t>(letter.size());
  return letter;
}

FirstMessage next_after(int64_t letter_words) {
  return {.bytes = std::max(FirstMessage{}.bytes, letter_words * kWord)};
}

class LetterReader {
 public:
  explicit LetterReader(std::vector<int64_t> letter) : letter_(std::move(letter)) {}

  int64_t number() { return letter_.at(at_++); }
  std::vector<int64_t> numbers(int64_t count) {
    std::vector<int64_t> out;
    for (int64_t n = 0; n < count; ++n) out.push_back(number());
    return out;
  }
  std::string text() {
    std::string out(number(), '\0');
    bytes(out.data(), static_cast<int64_t>(out.size()));
    return out;
  }
  void bytes(void* out, int64_t count) {
    LOCKSTEP_ASSERT(words_of(count) <= std::ssize(letter_) - static_cast<int64_t>(at_));
    if (count > 0) std::memcpy(out, &letter_[at_], count);
    at_ += words_of(count);
  }

 private:
  std::vector<int64_t> letter_;
  size_t at_ = 1;
};

}  // namespace

// As letter_of() counts.
void FirstMessage::foresee_gradients(const std::vector<at::Tensor>& tensors) {
  if (is_foreseen) return;
  int64_t words = 4;
  for (const at::Tensor& tensor : tensors) {
    const auto element = static_cast<int64_t>(tensor.element_size());
    words += 5 + 2 * tensor.dim();
    if (is_copied({0, tensor.numel()}, element)) words += words_of(tensor.numel() * element);
  }
  *this = next_after(words);
  is_foreseen = true;
}

std::vector<comm::Work> post(const comm::Group& group, int to, int tag, const Parcel& parcel, FirstMessage& first) {
  const at::NoGradGuard no_grad;
  auto letter = letter_of(parcel);
  const int64_t begin = words_of(first.bytes), all = letter[0];
  first = next_after(all);
  letter.resize(std::max(begin, all), 0);
  const auto words = at::tensor(letter, at::kLong);
  std::vector<comm::Work> works{group.send(words.narrow(0, 0, begin), to, tag)};
  if (all > begin) works.push_back(group.send(words.narrow(0, begin, all - begin), to, tag));
  for (const at::Tensor& tensor : parcel.tensors)
    if (tensor.defined() && !is_copied(extent_of(tensor), static_cast<int64_t>(tensor.element_size())))
      works.push_back(group.send(memory_of(tensor), to, tag));
  return works;
}

void expect(const comm::Group& group, int from, int tag, Arrival& next) {
  if (next.memory.defined()) return;
  next.memory = at::empty({words_of(next.first.bytes)}, at::kLong);
  next.work = group.recv(next.memory, from, tag);
}

Parcel receive(const comm::Group& group, int from, int tag, Arrival& next) {
  const at::NoGradGuard no_grad;
  expect(group, from, tag, next);
  std::vector<int64_t> letter;
  const auto read = [&](comm::Work work, const at::Tensor& message) {
    work.wait();
    const std::span<const int64_t> words(message.const_data_ptr<int64_t>(), message.numel());
    letter.insert(letter.end(), words.begin(), words.end());
  };
  read(next.work, std::exchange(next.memory, {}));
  next.work = {};
  const int64_t all = letter[0];
  next.first = next_after(all);
  if (const int64_t more = all - std::ssize(letter); more > 0) {
    const auto rest = at::empty({more}, at::kLong);
    read(group.recv(rest, from, tag), rest);
  }
  LetterReader reader(std::move(letter));
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
    const auto element = static_cast<int64_t>(memory.element_size());
    if (is_copied({lead, span}, element))
      reader.bytes(tensor.mutable_data_ptr(), span * element);
    else
      works.push_back(group.recv(memory.narrow(0, lead, span), from, tag));
  }
  for (comm::Work& work : works) work.wait();
  return parcel;
}

}  // namespace lockstep::parallel
