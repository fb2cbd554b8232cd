// SPDX-License-Identifier: Apache-2.0
// What one stream has filled, others wait for. Without a GPU streams are numbers, and waits are counted.
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include "sparse/cuda/twins.h"
#include "sparse/maps/cuda/tables.h"

namespace lockstep::sparse {
namespace {

TEST(CudaStreamsWithoutGpu, AnotherStreamWaitsAndKeepsTheMemory) {
  const KernelMapPtr map = test::make_map(100, 2, 3, 1);
  auto& stream = c10::cuda::current_stream();
  const auto table = cuda::table_on_device(*map, test::twin_device);
  const int waits = at::cuda::CUDAEvent::waits(), recorded = c10::cuda::CUDACachingAllocator::recorded();
  table->stream->use();
  EXPECT_EQ(at::cuda::CUDAEvent::waits(), waits) << "the stream that made it needs no wait";
  stream.number = 1;
  table->stream->use();
  stream.number = 0;
  EXPECT_EQ(at::cuda::CUDAEvent::waits(), waits + 1);
  EXPECT_EQ(c10::cuda::CUDACachingAllocator::recorded(), recorded + 3);  // rows of both sides, masks of tiles
}

TEST(CudaStreamsWithoutGpu, EveryOperationEntersItsMaps) {
  const KernelMapPtr map = test::make_map(100, 2, 3, 1);
  const RowMapPtr rows = map->row_map();
  const at::Tensor x = at::randn({map->in_size(), 2}), w = at::randn({9, 2, 2}), line = at::randn({9, 2});
  const at::Tensor chosen = cpu::row_argmax(x, rows);
  const std::vector<std::pair<const char*, std::function<void()>>> operations = {
      {"convolution", [&] { cuda::convolution(x, w, map, false, 1); }},
      {"convolution_weight", [&] { cuda::convolution_weight(x, x, map, 1); }},
      {"channelwise", [&] { cuda::channelwise(x, line, map); }},
      {"channelwise_weight", [&] { cuda::channelwise_weight(x, x, map); }},
      {"row_sum", [&] { cuda::row_sum(x, rows, std::nullopt); }},
      {"row_dot", [&] { cuda::row_dot(x, x, rows); }},
      {"row_argmax", [&] { cuda::row_argmax(x, rows); }},
      {"row_pick", [&] { cuda::row_pick(x, rows, chosen); }},
      {"row_unpick", [&] { cuda::row_unpick(x, rows, chosen); }},
  };
  for (const auto& [name, operation] : operations) {
    operation();  // makes what there is to make
    c10::cuda::current_stream().number = 1;
    const int waits = at::cuda::CUDAEvent::waits();
    operation();
    EXPECT_EQ(at::cuda::CUDAEvent::waits(), waits + 1) << name;
    c10::cuda::current_stream().number = 0;
  }
}

}  // namespace
}  // namespace lockstep::sparse
