// SPDX-License-Identifier: Apache-2.0
// Every replica sends the largest elements of each piece of its gradients: where they are (int32, ascending) and what
// they are. All processes get those of all replicas and add them up in the tree's order.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/context/timeline_scope.h"
#include "lockstep/numerics/tree.h"
#include "parallel/gradients/compress/compressor.h"

namespace lockstep::parallel {
namespace {

template <class T>
struct Magnitude;
template <>
struct Magnitude<float> {
  using Bits = uint32_t;
};
template <>
struct Magnitude<double> {
  using Bits = uint64_t;
};

// Magnitudes order as their bits do; a NaN is larger than all numbers, so that it is not kept back.
template <class T>
typename Magnitude<T>::Bits magnitude(T value) {
  typename Magnitude<T>::Bits bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits << 1 >> 1;
}

// The k-th largest magnitude of n, 1 <= k <= n, and how many of the elements that equal it are among the k largest.
// Digits of 11 bits are counted from the top; each round goes on with the elements that share the k-th one's digits.
template <class T>
std::pair<typename Magnitude<T>::Bits, int64_t> kth_largest(const T* values, int64_t n, int64_t k) {
  using Bits = typename Magnitude<T>::Bits;
  constexpr int kDigit = 11, kBits = 8 * sizeof(Bits);
  Bits known = 0, mask = 0;
  int64_t wanted = k;
  for (int shift = kBits - kDigit; mask != ~Bits{0}; shift -= kDigit) {
    const int at = std::max(shift, 0), width = kDigit + std::min(shift, 0);
    std::array<int64_t, 1 << kDigit> counts{};
    for (int64_t i = 0; i < n; ++i)
      if (const Bits bits = magnitude(values[i]); (bits & mask) == known)
        ++counts[static_cast<size_t>(bits >> at & ((Bits{1} << width) - 1))];
    int64_t digit = (int64_t{1} << width) - 1;
    for (; counts[static_cast<size_t>(digit)] < wanted; --digit) wanted -= counts[static_cast<size_t>(digit)];
    known |= static_cast<Bits>(digit) << at;
    mask |= ((Bits{1} << width) - 1) << at;
  }
  return {known, wanted};
}

// Moves the k largest out of `values`, which keeps the rest; of equal ones the first.
template <class T>
void take_largest(T* values, int64_t n, int64_t k, int32_t* indices, T* taken) {
  auto [least, ties] = kth_largest(values, n, k);
  for (int64_t i = 0; i < n; ++i) {
    const auto size = magnitude(values[i]);
    if (size < least || (size == least && ties-- <= 0)) continue;
    *indices++ = static_cast<int32_t>(i);
    *taken++ = values[i];
    values[i] = 0;
  }
}

// A sum of a few replicas: the elements that one of them sent, ascending.
template <class T>
using Sparse = std::vector<std::pair<int32_t, T>>;

template <class T>
void merge(Sparse<T>& left, Sparse<T>&& right) {
  Sparse<T> sum;
  sum.reserve(left.size() + right.size());
  auto a = left.begin(), b = right.begin();
  while (a != left.end() && b != right.end()) {
    if (a->first == b->first) {
      sum.emplace_back(a->first, a->second + b->second);
      ++a, ++b;
    } else {
      sum.push_back(a->first < b->first ? *a++ : *b++);
    }
  }
  sum.insert(sum.end(), a, left.end());
  sum.insert(sum.end(), b, right.end());
  left = std::move(sum);
}

class TopKCompressor : public GradientCompressor {
 public:
  TopKCompressor(TeamState& team, const TopK& wire, std::vector<CompressedParameter> parameters)
      : GradientCompressor(team, std::move(parameters)), share_(wire.share) {
    for (int64_t p = 0; p < count(); ++p)
      if (parameter(p).weight.scalar_type() == at::kDouble) dtype_ = at::kDouble;
  }

  void sum(int64_t number, const at::Tensor& into) const override {
    if (dtype_ == at::kDouble)
      sum_as<double>(number, into);
    else
      sum_as<float>(number, into);
  }

 private:
  int64_t kept(const Piece& piece) const {
    return std::max<int64_t>(1, std::llround(std::ceil(share_ * static_cast<double>(piece.size()))));
  }

  CrewWork compress(std::function<CrewWork()> next) override {
    begins_.assign(1, 0);
    for (const Piece& piece : plan().pieces) begins_.push_back(begins_.back() + kept(piece));
    indices_ = at::empty({team().members(), begins_.back()}, at::kInt);
    values_ = at::empty({team().members(), begins_.back()}, dtype_);
    return {team().members() * count(), [this](int64_t task) { select(task / count(), task % count()); },
            [this, next = std::move(next)] {
              const PhaseScope waiting(Phase::exposed);
              indices_ = team().gather_rows(indices_);
              values_ = team().gather_rows(values_);
              return next();
            }};
  }

  void select(int64_t member, int64_t p) {
    if (!used(p)) {
      for (const int64_t number : plan().pieces_of[p]) send_nothing(member, number);
      return;
    }
    const at::Tensor& gradient = prepare(member, p);
    for (const int64_t number : plan().pieces_of[p]) {
      if (gradient.scalar_type() == dtype_ && dtype_ == at::kFloat)
        select_from(member, number, gradient.mutable_data_ptr<float>());
      else if (gradient.scalar_type() == dtype_)
        select_from(member, number, gradient.mutable_data_ptr<double>());
      else
        select_widened(member, number, gradient);
    }
  }

  int32_t* indices(int64_t row, int64_t number) const {
    return indices_.mutable_data_ptr<int32_t>() + row * begins_.back() + begins_[number];
  }
  template <class T>
  T* values(int64_t row, int64_t number) const {
    return values_.mutable_data_ptr<T>() + row * begins_.back() + begins_[number];
  }

  template <class T>
  void select_from(int64_t member, int64_t number, T* gradient) const {
    const Piece& piece = plan().pieces[number];
    take_largest(gradient + piece.begin, piece.size(), kept(piece), indices(member, number), values<T>(member, number));
  }

  // A float32 tensor beside float64 ones.
  void select_widened(int64_t member, int64_t number, const at::Tensor& gradient) const {
    const Piece& piece = plan().pieces[number];
    std::vector<float> taken(static_cast<size_t>(kept(piece)));
    take_largest(gradient.mutable_data_ptr<float>() + piece.begin, piece.size(), kept(piece), indices(member, number),
                 taken.data());
    std::copy(taken.begin(), taken.end(), values<double>(member, number));
  }

  void send_nothing(int64_t member, int64_t number) const {
    const int64_t kept = begins_[number + 1] - begins_[number];
    for (int64_t i = 0; i < kept; ++i) indices(member, number)[i] = static_cast<int32_t>(i);
    values_[member].narrow(0, begins_[number], kept).zero_();
  }

  template <class T>
  void sum_as(int64_t number, const at::Tensor& into) const {
    const int64_t kept = begins_[number + 1] - begins_[number], replicas = team().placement.replicas();
    const auto sent = [&](int64_t r) {
      Sparse<T> leaf;
      leaf.reserve(static_cast<size_t>(kept));
      for (int64_t i = 0; i < kept; ++i) leaf.emplace_back(indices(r, number)[i], values<T>(r, number)[i]);
      return leaf;
    };
    const Sparse<T> sum = merge_as_tree(replicas, sent, &merge<T>);
    into.zero_();
    const bool wide = into.scalar_type() == at::kDouble;
    for (const auto& [index, value] : sum) {
      if (wide)
        into.mutable_data_ptr<double>()[index] = static_cast<double>(value);
      else
        into.mutable_data_ptr<float>()[index] = static_cast<float>(value);
    }
  }

  double share_;
  at::ScalarType dtype_ = at::kFloat;
  std::vector<int64_t> begins_;  // of each piece in a replica's message
  at::Tensor indices_;           // [members, kept], [replicas, kept] once they are there
  at::Tensor values_;
};

}  // namespace

std::unique_ptr<GradientCompressor> make_top_k(TeamState& team, const TopK& wire,
                                               std::vector<CompressedParameter> parameters) {
  return std::make_unique<TopKCompressor>(team, wire, std::move(parameters));
}

}  // namespace lockstep::parallel
