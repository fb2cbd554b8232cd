// SPDX-License-Identifier: Apache-2.0
// What the examples of networks that make clouds share: the shapes that they learn, a measure, and their options.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/meshgrid.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/numerics/random.h"
#include "lockstep/sparse/tensor_field.h"

namespace shapes {

constexpr int64_t kSide = 16;

/// The voxels of a hollow ball, box or cylinder of any proportions in a cube of kSide: int32 [n, 3].
inline at::Tensor draw(lockstep::RandomKey key) {
  const auto axis = at::arange(kSide, at::kFloat);
  const auto grid = at::stack(at::meshgrid({axis, axis, axis}, "ij"), -1).view({-1, 3});
  const auto radii = 4 + 3.5 * lockstep::uniform_(at::empty({3}), key.fold(0));
  const auto from_middle = (grid - 0.5 * (kSide - 1)) / radii, distances = from_middle.abs();
  const auto to_axis = distances.slice(1, 0, 2).norm(2, 1, /*keepdim=*/true), height = distances.slice(1, 2);
  const std::vector<at::Tensor> sizes{distances.norm(2, 1), distances.amax(1), at::cat({to_axis, height}, 1).amax(1)};
  const at::Tensor size = sizes[lockstep::below(key.fold(1), 0, sizes.size())];
  const double wall = 1 / radii.min().item<double>();  // of one voxel at least
  return grid.index({size.le(1).logical_and(size.gt(1 - wall))}).to(at::kInt);
}

/// That half of a shape which lies before a random plane through the middle.
inline at::Tensor half_of(const at::Tensor& shape, lockstep::RandomKey key) {
  const auto direction = lockstep::normal_(at::empty({3}), key.fold(2));
  return shape.index({(shape.to(at::kFloat) - 0.5 * (kSide - 1)).matmul(direction).gt(0)});
}

/// Clouds of one batch, with the feature 1.
inline lockstep::sparse::SparseTensor collate(const std::vector<at::Tensor>& clouds) {
  std::vector<at::Tensor> features;
  for (const auto& cloud : clouds) features.push_back(at::ones({cloud.size(0), 1}));
  const auto batch = lockstep::sparse::sparse_collate(clouds, features);
  return {batch.features, batch.coordinates};
}

/// In voxels, how many of those made should be there, and how many were made or should be there: [2].
inline at::Tensor overlap(const lockstep::sparse::SparseTensor& made, const lockstep::sparse::CoordinateMap& wanted) {
  const auto both = wanted.find(made.coordinates()).ge(0).sum().item<int64_t>();
  return at::tensor({both, made.size() + wanted.size() - both}).to(at::kDouble);
}

using Options = std::map<std::string, std::string>;

/// NAME VALUE pairs in the place of these defaults. --help says what there is, and ends the program.
inline Options parse(int argc, char** argv, const char* about, Options options) {
  std::string known;
  for (const auto& [name, value] : options) known += lockstep::text(" [", name, " ", value, "]");
  for (int i = 1; i < argc; i += 2) {
    if (std::string(argv[i]) == "--help") {
      std::printf("%s\nusage: %s%s\n", about, argv[0], known.c_str());
      std::exit(0);
    }
    lockstep::require(options.contains(argv[i]) && i + 1 < argc, "options", "got '", argv[i], "', expected", known);
    options[argv[i]] = argv[i + 1];
  }
  return options;
}

}  // namespace shapes
