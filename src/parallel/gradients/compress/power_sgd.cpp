// SPDX-License-Identifier: Apache-2.0
// PowerSGD. With D_r a replica's gradient plus its residual, [n, m], and Q [m, rank] from the step before:
//   P = orthonormal(sum_r D_r Q),  Q = sum_r D_r^T P,  the sum of gradients = P Q^T,  residual_r = D_r - P P^T D_r.
// The residuals add up to what P Q^T lacks. Both sums are over replicas in the tree's order. Q lies transposed.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/numerics/random.h"
#include "parallel/gradients/compress/compressor.h"

namespace lockstep::parallel {
namespace {

// A column that the ones before it make up to this share is noise.
constexpr double kDependent = 1e-6;
constexpr uint64_t kFirstQ = 3;  // beside the other draws of a run (team_state.h)

// Makes the columns of P [n, rank] orthonormal (modified Gram-Schmidt, in double); those that depend on others are
// zero.
template <class T>
void make_orthonormal(T* p, int64_t n, int64_t rank) {
  const auto dot = [&](int64_t a, int64_t b) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(p[i * rank + a]) * static_cast<double>(p[i * rank + b]);
    return sum;
  };
  for (int64_t k = 0; k < rank; ++k) {
    const double before = std::sqrt(dot(k, k));
    for (int64_t other = 0; other < k; ++other) {
      const double part = dot(k, other);
      for (int64_t i = 0; i < n; ++i)
        p[i * rank + k] = static_cast<T>(p[i * rank + k] - part * static_cast<double>(p[i * rank + other]));
    }
    const double norm = std::sqrt(dot(k, k));
    // A NaN stays one, so that loss scaling sees it.
    const double scale = norm <= kDependent * before ? 0 : 1 / norm;
    for (int64_t i = 0; i < n; ++i) p[i * rank + k] = static_cast<T>(p[i * rank + k] * scale);
  }
}

// Elements [begin, end) of P Q^T, row by row; q is Q^T [rank, m].
template <class T>
void multiply(T* into, const T* p, const T* q, int64_t m, int64_t rank, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / m, from = at % m, length = std::min(m - from, end - at);
    T* const out = into + (at - begin);
    std::fill(out, out + length, T{0});
    for (int64_t k = 0; k < rank; ++k) {
      const T factor = p[row * rank + k];
      const T* const source = q + k * m + from;
      for (int64_t i = 0; i < length; ++i) out[i] += factor * source[i];
    }
    at += length;
  }
}

class PowerSgdCompressor : public GradientCompressor {
 public:
  PowerSgdCompressor(TeamState& team, const PowerSgd& wire, std::vector<CompressedParameter> parameters)
      : GradientCompressor(team, std::move(parameters)) {
    for (int64_t p = 0; p < count(); ++p) add_matrix(p, wire.rank);
  }

  void sum(int64_t number, const at::Tensor& into) const override {
    const Piece& piece = plan().pieces[number];
    const Matrix& matrix = matrices_[piece.parameter];
    if (matrix.rank == 0)
      into.copy_(first_.narrow(0, matrix.first + piece.begin, piece.size()));
    else if (into.scalar_type() == at::kFloat)
      multiply_as<float>(matrix, piece, into);
    else
      multiply_as<double>(matrix, piece, into);
  }

  void commit() override {
    const at::NoGradGuard no_grad;
    for (int64_t p = 0; p < count(); ++p)
      if (const Matrix& matrix = matrices_[p]; matrix.rank > 0 && used(p))
        matrix.q.copy_(part(second_, matrix.second, matrix.q));
    GradientCompressor::commit();
  }

  void drop() override {
    GradientCompressor::drop();
    first_.reset();
    second_.reset();
  }

  std::map<std::string, at::Tensor> state() const override {
    auto out = GradientCompressor::state();
    for (int64_t p = 0; p < count(); ++p)
      if (matrices_[p].rank > 0) out[q_name(p)] = matrices_[p].q.clone();
    return out;
  }
  std::map<std::string, std::vector<int64_t>> state_sizes() const override {
    auto out = GradientCompressor::state_sizes();
    for (int64_t p = 0; p < count(); ++p)
      if (matrices_[p].rank > 0) out[q_name(p)] = matrices_[p].q.sizes().vec();
    return out;
  }
  void load_state(const std::map<std::string, at::Tensor>& state) override {
    GradientCompressor::load_state(state);
    for (int64_t p = 0; p < count(); ++p)
      if (matrices_[p].rank > 0) matrices_[p].q.copy_(state.at(q_name(p)));
  }

 private:
  // A parameter's gradient as a matrix, and where its parts lie in the two messages.
  struct Matrix {
    int64_t rows = 0, columns = 0;
    int64_t rank = 0;  // 0: it travels whole, in the first message
    int64_t first = 0, second = 0;
    at::Tensor q;  // Q^T [rank, columns]
  };

  bool has_residual(int64_t p) const override { return matrices_[p].rank > 0; }
  std::string q_name(int64_t p) const { return parameter(p).name + ".power_sgd_q"; }

  void add_matrix(int64_t p, int64_t rank) {
    const at::Tensor& weight = parameter(p).weight;
    Matrix matrix{1, weight.numel(), 0, first_length_, second_length_, {}};
    // Rows must lie one after the other, as they do contiguous and channels-last.
    if (weight.dim() > 1 && weight.numel() > 0 && weight.stride(0) == weight.numel() / weight.size(0)) {
      matrix.rows = weight.size(0);
      matrix.columns = weight.numel() / weight.size(0);
      if (2 * rank * (matrix.rows + matrix.columns) < weight.numel()) matrix.rank = rank;
    }
    if (matrix.rank > 0) {
      matrix.q = at::empty({rank, matrix.columns}, weight.options());
      normal_(matrix.q, RandomKey{team().options.seed, kFirstQ}.fold(static_cast<uint64_t>(p)));
    }
    first_length_ += aligned(matrix.rank > 0 ? matrix.rows * matrix.rank : weight.numel());
    second_length_ += aligned(matrix.rank * matrix.columns);
    if (weight.scalar_type() == at::kDouble) dtype_ = at::kDouble;
    matrices_.push_back(std::move(matrix));
  }

  // Matrices begin at multiples of 64 bytes, so that MKL multiplies them in one way.
  static int64_t aligned(int64_t length) { return (length + 15) / 16 * 16; }

  // The part of a message that holds a tensor of the shape of `like`.
  static at::Tensor part(const at::Tensor& message, int64_t begin, const at::Tensor& like) {
    return message.narrow(0, begin, like.numel()).view(like.sizes());
  }

  template <class T>
  void multiply_as(const Matrix& matrix, const Piece& piece, const at::Tensor& into) const {
    const auto p = p_of(matrix).to(into.scalar_type());
    const auto q = part(second_, matrix.second, matrix.q).to(into.scalar_type());
    multiply(into.mutable_data_ptr<T>(), p.const_data_ptr<T>(), q.const_data_ptr<T>(), matrix.columns, matrix.rank,
             piece.begin, piece.end);
  }

  at::Tensor p_of(const Matrix& matrix) const {
    return first_.narrow(0, matrix.first, matrix.rows * matrix.rank).view({matrix.rows, matrix.rank});
  }

  CrewWork compress(std::function<CrewWork()> next) override {
    const auto options = at::TensorOptions(dtype_);
    first_rows_ = at::zeros({team().members(), first_length_}, options);
    second_rows_ = at::zeros({team().members(), second_length_}, options);
    const int64_t tasks = team().members() * count();
    const auto second_sum = [this, next = std::move(next)] {
      second_ = sum_over_replicas(second_rows_);
      return next();
    };
    const auto project_all = [this, tasks, second_sum]() -> CrewWork {
      return {tasks, [this](int64_t task) { project(task / count(), task % count()); }, second_sum};
    };
    return {tasks, [this](int64_t task) { start(task / count(), task % count()); },
            [this, project_all]() -> CrewWork {
              first_ = sum_over_replicas(first_rows_);
              return {count(), [this](int64_t p) { orthonormalise(p); }, project_all};
            }};
  }

  at::Tensor sum_over_replicas(at::Tensor& rows) const {
    auto sum = team().sum_rows(rows, team().gradients);
    rows.reset();
    return sum;
  }

  at::Tensor matrix_of(int64_t member, int64_t p) const {
    return prepared(member, p).view({matrices_[p].rows, matrices_[p].columns});
  }

  void start(int64_t member, int64_t p) {
    const at::NoGradGuard no_grad;
    if (!used(p)) return;
    const Matrix& matrix = matrices_[p];
    const at::Tensor& gradient = prepare(member, p);
    const int64_t length = matrix.rank > 0 ? matrix.rows * matrix.rank : gradient.numel();
    const auto into = first_rows_[member].narrow(0, matrix.first, length);
    if (matrix.rank == 0)
      into.copy_(gradient);
    else
      into.view({matrix.rows, matrix.rank}).copy_(at::mm(matrix_of(member, p), matrix.q.t()));
  }

  void orthonormalise(int64_t p) const {
    const Matrix& matrix = matrices_[p];
    if (matrix.rank == 0 || !used(p)) return;
    const auto all = p_of(matrix);
    if (dtype_ == at::kFloat)
      make_orthonormal(all.mutable_data_ptr<float>(), matrix.rows, matrix.rank);
    else
      make_orthonormal(all.mutable_data_ptr<double>(), matrix.rows, matrix.rank);
  }

  void project(int64_t member, int64_t p) const {
    const at::NoGradGuard no_grad;
    const Matrix& matrix = matrices_[p];
    if (matrix.rank == 0 || !used(p)) return;
    auto gradient = matrix_of(member, p);
    const auto basis = p_of(matrix).to(gradient.scalar_type());
    const auto mine = at::mm(basis.t(), gradient);
    part(second_rows_[member], matrix.second, matrix.q).copy_(mine);
    gradient.addmm_(basis, mine, 1, -1);
  }

  std::vector<Matrix> matrices_;
  at::ScalarType dtype_ = at::kFloat;
  int64_t first_length_ = 0, second_length_ = 0;
  at::Tensor first_rows_, second_rows_;  // [members, length]: what each replica adds
  at::Tensor first_, second_;            // the sums: P and whole gradients, Q^T
};

}  // namespace

std::unique_ptr<GradientCompressor> make_power_sgd(TeamState& team, const PowerSgd& wire,
                                                   std::vector<CompressedParameter> parameters) {
  return std::make_unique<PowerSgdCompressor>(team, wire, std::move(parameters));
}

}  // namespace lockstep::parallel
