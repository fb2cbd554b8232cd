// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>

/// What of the gradients crosses between replicas: `OptimizerOptions{.wire = PowerSgd{.rank = 2}}`. It is part of the
/// recipe, not of the placement: what is lost of a gradient is lost for replicas on one thread as for those on two
/// hosts, so the contract holds for all of these, the same bits in every placement.
namespace lockstep::parallel {

/// Everything.
struct ExactWire {
  bool operator==(const ExactWire&) const = default;
};

/// Two bytes a number instead of four. Every replica's contribution is rounded to nearest, and so is every partial sum
/// of the tree (in memory as on a wire), log2 R times in all; the rule sees float32 again. Gradients of 16-bit
/// parameters are left as they are. float16 overflows where the sum over replicas of weight times gradient passes
/// 65,504: use it with loss scaling, which leaves such a step out.
struct RoundedWire {
  enum class Type : uint8_t { bf16, fp16 };
  Type type = Type::bf16;
  bool operator==(const RoundedWire&) const = default;
};

/// The largest `share` of each replica's gradient, by magnitude, out of each 32 Ki elements of a tensor; at least one.
/// What a replica does not send it adds to its next gradient (error feedback), so nothing is lost, only late. An
/// element costs 8 bytes, and every process gets those of all R replicas: it pays while R * share is well below 1.
struct TopK {
  double share = 0.01;
  /// Updates made with whole gradients first.
  int64_t start = 0;
  bool operator==(const TopK&) const = default;
};

/// Each matrix of gradients M [n, m] as a product of rank `rank` (Vogels, Karimireddy, Jaggi 2019): replicas add up M
/// Q, make its columns orthonormal (P), add up M^T P and so get the next step's Q (warm start). rank * (n + m) numbers
/// travel instead of n * m. What the product lacks of a replica's gradient is added to its next one. A tensor is the
/// matrix of its first dimension by all others; where that would save less than half, it travels whole.
struct PowerSgd {
  int64_t rank = 4;
  /// Updates made with whole gradients first.
  int64_t start = 0;
  bool operator==(const PowerSgd&) const = default;
};

/// TopK and PowerSgd keep a residual the size of the gradients for each replica, which state_dict() holds too, and run
/// on the CPU, for float32 and float64 parameters. They are averaged with the weights of the step that they are sent
/// in, hence travel after the backward pass, not during it.
using Wire = std::variant<ExactWire, RoundedWire, TopK, PowerSgd>;

/// "none", "bf16", "fp16", "top_k:0.01", "power_sgd:4": what parse_wire() reads.
std::string to_string(const Wire& wire);
/// "top_k" and "power_sgd" alone have the defaults above. Throws Error on any other text.
Wire parse_wire(const std::string& text);

/// Throws Error, naming the number, where one makes no sense: a share of 0, a rank of 0.
void check(const Wire& wire);

}  // namespace lockstep::parallel
