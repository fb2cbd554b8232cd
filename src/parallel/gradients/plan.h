// SPDX-License-Identifier: Apache-2.0
// How gradients are cut into pieces and buckets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/numerics/detail/flat.h"

namespace lockstep::parallel {

/// Elements [begin, end) of one parameter, small enough that R gradients and the sum of a piece fit a core's cache.
/// Their bounds follow from the parameter's size alone, so they are the same in every placement.
struct Piece {
  int64_t parameter = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t bucket = 0;
  int64_t offset = 0;  // in its bucket

  int64_t size() const { return end - begin; }
};

/// The length of a tensor's pieces; its last one may be shorter. On a GPU a piece is the whole tensor.
int64_t piece_length(const at::Device& device, int64_t numel);

/// Pieces of one dtype that cross between processes together.
struct Bucket {
  at::ScalarType dtype = at::kFloat;
  int64_t numel = 0;
  std::vector<int64_t> pieces;
  /// The parameters that have elements here, each once.
  std::vector<int64_t> parameters;
};

/// What a bucket holds at least before the next one begins: large enough for a message to run at full speed, small
/// enough that the last one is soon over. Between GPUs it is over sooner, and what the host does for it takes longest.
int64_t bucket_bytes(const at::Device& device);

/// How the gradients of an optimiser's parameters are cut up.
struct GradientPlan {
  std::vector<Piece> pieces;    // in the order of their buckets
  std::vector<Bucket> buckets;  // in the order in which they are expected to become ready
  /// For each parameter its pieces in ascending order, and its buckets.
  std::vector<std::vector<int64_t>> pieces_of;
  std::vector<std::vector<int64_t>> buckets_of;

  /// `order`: the parameters' numbers as their gradients become ready; `bytes` are those of a bucket. Pieces on a GPU
  /// are whole parameters.
  static GradientPlan make(const FlatLayout& layout, std::span<const int64_t> order, int64_t bytes);
};

}  // namespace lockstep::parallel
