// SPDX-License-Identifier: Apache-2.0
// Batch norms of rows and of images on CUDA, as the CPU has them.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>

#include "lockstep/norm/detail/batch_statistics.h"
#include "lockstep/norm/detail/row_kernels.h"
#include "norm/channel_parts.h"
#include "norm/strided.h"
#include "support/twins/twins.h"

namespace lockstep::norm {
namespace {

using test::expect_close;
using test::expect_twin;
using test::on_twin;
using test::random;
using test::tolerance_of;

TEST(TWIN_SUITE(CudaNorms), NormalizeAsTheCpuDoes) {
  SKIP_WITHOUT_GPU();
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16})
    for (const int64_t rows : {0, 1, 700}) {
      at::manual_seed(6);
      const int64_t channels = 4;
      const at::Tensor x = random({rows, channels}, type) + 3, g = random({rows, channels}, type);
      const at::Tensor mean = random({channels}, at::kDouble), inverse = at::rand({channels}, at::kDouble),
                       weight = random({channels}, type), bias = random({channels}, type),
                       scale = random({channels}, at::kDouble), means = random({2, channels}, at::kDouble);
      const at::Tensor tx = on_twin(x), tg = on_twin(g), t_mean = on_twin(mean), t_inverse = on_twin(inverse);
      const double tolerance = tolerance_of(type);
      expect_twin([&] { return cuda::column_moments(tx); }, cpu::column_moments(x), std::min(tolerance, 1e-5));
      expect_twin([&] { return cuda::normalize(tx, t_mean, t_inverse, on_twin(weight), on_twin(bias)); },
                  cpu::normalize(x, mean, inverse, weight, bias), tolerance);
      expect_twin([&] { return cuda::normalize_sums(tg, tx, t_mean, t_inverse); },
                  cpu::normalize_sums(g, x, mean, inverse), std::min(tolerance, 1e-5));
      expect_twin([&] { return cuda::normalize_gradient(tg, tx, t_mean, t_inverse, on_twin(scale), on_twin(means)); },
                  cpu::normalize_gradient(g, x, mean, inverse, scale, means), tolerance);
    }
}

// The slices of so many rows are joined by several threads.
TEST(TWIN_SUITE(CudaNorms), JoinManySlicesAsTheCpuDoes) {
  SKIP_WITHOUT_GPU();
  at::manual_seed(6);
  const at::Tensor x = random({256 * 150 + 3, 2}, at::kFloat) + 3, g = random(x.sizes(), at::kFloat);
  const at::Tensor mean = random({2}, at::kDouble), inverse = at::rand({2}, at::kDouble);
  expect_twin([tx = on_twin(x)] { return cuda::column_moments(tx); }, cpu::column_moments(x), 1e-6);
  expect_twin([&] { return cuda::normalize_sums(on_twin(g), on_twin(x), on_twin(mean), on_twin(inverse)); },
              cpu::normalize_sums(g, x, mean, inverse), 1e-5);
}

TEST(TWIN_SUITE(CudaNorms), MergeReplicasMoments) {
  SKIP_WITHOUT_GPU();
  at::manual_seed(7);
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{5}, {4, 1, 7}, {0, 3, 0, 2, 0}, {0, 0}}) {
    std::vector<at::Tensor> shares, moments;
    for (const int64_t size : sizes) {
      shares.push_back(random({size, 3}, at::kDouble) + 1);
      moments.push_back(cpu::column_moments(shares.back()));
    }
    const at::Tensor all = on_twin(at::stack(moments));
    expect_twin([&] { return cuda::merge_moments(all); }, cpu::column_moments(at::cat(shares)), 1e-12);
  }
  std::vector<at::Tensor> many;
  for (int64_t r = 0; r < 130; ++r) many.push_back(cpu::column_moments(random({3, 2}, at::kDouble)));
  const at::Tensor all = at::stack(many);
  expect_twin([&] { return cuda::merge_moments(on_twin(all)); }, merge_moments(all), 1e-12);
}

TEST(TWIN_SUITE(CudaNorms), MakeAndMoveStatisticsAsTheCpuDoes) {
  SKIP_WITHOUT_GPU();
  at::manual_seed(9);
  for (const int64_t rows : {0, 1, 2, 40}) {
    const at::Tensor moments = cpu::column_moments(random({rows, 5}, at::kDouble) + 1), there = on_twin(moments);
    const BatchStatistics expected(moments, 1e-3);
    const at::Tensor made = at::empty_like(there);
    cuda::for_each_channel(there.device(), 5,
                           MakeStatistics{there.const_data_ptr<double>(), 5, 1e-3, made.mutable_data_ptr<double>()});
    expect_close(made, at::stack({expected.count, expected.variance, expected.inverse_deviation}), 1e-14);
    for (const bool variance : {false, true}) {
      const at::Tensor before = random({5}, at::kFloat), row = on_twin(before).clone(), other = random({5}, at::kFloat);
      cuda::for_each_channel(
          there.device(), 5,
          MoveRow<float>{row.mutable_data_ptr<float>(), there.const_data_ptr<double>(), 5, 0.2, variance});
      const at::Tensor moved = before.clone();
      move_running_statistics(variance ? other : moved, variance ? moved : other, moments, 0.2);
      expect_close(row, moved, 1e-6);
    }
  }
}

TEST(TWIN_SUITE(CudaNorms), NormalizeImagesAsTheCpuDoes) {
  SKIP_WITHOUT_GPU();
  at::manual_seed(8);
  const at::Tensor mean = random({5}, at::kDouble), inverse = at::rand({5}, at::kDouble) + 0.5,
                   means = random({2, 5}, at::kDouble), scale = at::rand({5}, at::kDouble), none;
  const Operations images = strided_operations();
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf})
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{4, 5, 3, 7}, {6, 5}, {3, 5, 4}, {2, 5, 2, 3, 2}, {0, 5, 2, 2}})
      for (const bool last : {false, true}) {
        if (last && shape.size() != 4) continue;
        const auto format = last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
        const at::Tensor x = (random(shape, type) + 2).contiguous(format), g = random(shape, type).contiguous(format);
        const at::Tensor tx = on_twin(x), tg = on_twin(g), t_mean = on_twin(mean), t_inverse = on_twin(inverse);
        const double tolerance = tolerance_of(type), of_sums = std::min(tolerance, 1e-5);
        expect_twin([&] { return cuda::batch_moments(tx); }, images.moments(x), of_sums);
        expect_twin([&] { return cuda::batch_gradient_sums(tg, tx, t_mean, t_inverse); },
                    images.gradient_sums(g, x, mean, inverse), of_sums);
        for (const at::Tensor& weight : {none, scale}) {
          const at::Tensor t_weight = weight.defined() ? on_twin(weight) : none;
          expect_twin([&] { return cuda::batch_normalize(tx, t_mean, t_inverse, t_weight, t_weight); },
                      images.normalize(x, mean, inverse, weight, weight), tolerance);
          const auto gradient = [&] {
            return cuda::batch_input_gradient(tg, tx, t_mean, t_inverse, t_weight, on_twin(means));
          };
          expect_twin(gradient, images.input_gradient(g, x, mean, inverse, weight, means), 2 * tolerance);
          EXPECT_TRUE(gradient().is_contiguous(format));
        }
      }
}

}  // namespace
}  // namespace lockstep::norm
