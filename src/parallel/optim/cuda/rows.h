// SPDX-License-Identifier: Apache-2.0
// What a thread does of a table of tensors, and the rules' kernels, element by element. Who includes it has defined
// `on_gpu::launch(count, part)`, which runs part(0) to part(count - 1): on a GPU, or in a test one after the other.
#pragma once

#define LOCKSTEP_ISA on_gpu
#define LOCKSTEP_RULES_ON_GPU

#include "parallel/optim/rules/rule_batch.h"

namespace lockstep::parallel::on_gpu {

/// The threads of a chunk.
constexpr int64_t kLanes = 256;

LOCKSTEP_HOST_DEVICE inline int64_t end_of(const RuleChunk& chunk, int64_t count) {
  const int64_t end = (int64_t{chunk.number} + 1) * RuleChunk::kElements;
  return end < count ? end : count;
}

template <class T>
LOCKSTEP_HOST_DEVICE RuleElements<T> element_of(const RuleElements<T>& all, int64_t i) {
  RuleElements<T> one{all.weight + i, all.gradient + i, {}, 1};
  for (int k = 0; k < 3; ++k) one.state[k] = all.state[k] == nullptr ? nullptr : all.state[k] + i;
  return one;
}

/// A rule's kernel, element by element.
template <class T, class Numbers, class Kernel>
struct RuleRows {
  const RuleRow<T, Numbers>* rows;
  const RuleChunk* chunks;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const RuleChunk chunk = chunks[i / kLanes];
    const RuleRow<T, Numbers> row = rows[chunk.row];
    const int64_t end = end_of(chunk, row.elements.count);
    for (int64_t e = chunk.number * RuleChunk::kElements + i % kLanes; e < end; e += kLanes)
      Kernel()(element_of(row.elements, e), row.numbers);
  }
};

/// lines[lane][chunk]: the squares of every kSquareLanes-th value of a chunk.
template <class T>
struct ChunkSquares {
  const SquaresRow<T>* rows;
  const RuleChunk* chunks;
  int64_t count;
  double* lines;

  LOCKSTEP_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t number = i / kSquareLanes, lane = i % kSquareLanes;
    const RuleChunk chunk = chunks[number];
    const SquaresRow<T> row = rows[chunk.row];
    const int64_t end = end_of(chunk, row.count);
    double sum = 0;
    for (int64_t e = chunk.number * RuleChunk::kElements + lane; e < end; e += kSquareLanes) {
      const auto x = static_cast<double>(row.values[e]);
      sum = portable::multiply_add(x, x, sum);
    }
    lines[lane * count + number] = sum;
  }
};

template <class T, class Numbers, class Kernel>
void launch_rows(const RuleTable& table) {
  launch(table.count * kLanes,
         RuleRows<T, Numbers, Kernel>{reinterpret_cast<const RuleRow<T, Numbers>*>(table.rows), table.chunks});
}

template <class T>
void launch_squares(const RuleTable& table, double* lines, double* sums) {
  launch(table.count * kSquareLanes,
         ChunkSquares<T>{reinterpret_cast<const SquaresRow<T>*>(table.rows), table.chunks, table.count, lines});
  launch(table.count, portable::SumLines<double, double>{lines, kSquareLanes, table.count, sums});
}

void squares_float(const RuleTable& table, double* lines, double* sums) {
  launch_squares<float>(table, lines, sums);
}
void squares_double(const RuleTable& table, double* lines, double* sums) {
  launch_squares<double>(table, lines, sums);
}

}  // namespace lockstep::parallel::on_gpu

#include "parallel/optim/rules/adagrad.cpp"
#include "parallel/optim/rules/adam.cpp"
#include "parallel/optim/rules/lamb.cpp"
#include "parallel/optim/rules/rmsprop.cpp"
#include "parallel/optim/rules/sgd.cpp"
