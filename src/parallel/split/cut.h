// SPDX-License-Identifier: Apache-2.0
// Where a network is cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// The first stage of each part, where the stages' costs are divided over the parts as evenly as can be: the part with
/// the largest cost a device has the least that any cut gives. `devices`: of each part. Parts are never empty: there
/// are at least as many stages.
/// `borders`: what a cut in front of each stage costs both parts; empty where it costs nothing. `links`: how many times
/// as much the way from each part to the next one takes, while both compute; it counts as a part would.
std::vector<size_t> cut_evenly(std::span<const double> costs, std::span<const int64_t> devices,
                               std::span<const double> borders = {}, std::span<const double> links = {});

/// The same for threads. `late`: what of each stage's costs are gradients of weights that any device may compute; those
/// of the first part are not put off. Of the cuts whose parts are as even with that as can be, the one that is most
/// even without.
std::vector<size_t> cut_for_threads(std::span<const double> costs, std::span<const double> late,
                                    std::span<const int64_t> devices);

/// The same where only these stages may begin a part; the first of them is 0. `crossing`: bytes that cross behind each
/// stage where the next one is in another process, there and back; the costs are seconds then. Empty where none do.
/// `seconds_a_byte`: of the link from each part to the next one, which carries as much both ways at once.
std::vector<size_t> cut_evenly_at(std::span<const size_t> begins, std::span<const double> costs,
                                  std::span<const int64_t> devices, std::span<const int64_t> crossing = {},
                                  std::span<const double> seconds_a_byte = {});

/// Which stages may begin a part where each has weights that are trained: what has none stays with what comes before
/// it, or with the first that has some.
std::vector<bool> may_begin_part(const std::vector<bool>& is_trained);

/// "conv1 to pool2 (61 %) | conv3 to fc (39 %)", of stages with these names.
std::string describe_cut(std::span<const std::string> names, std::span<const double> costs,
                         std::span<const size_t> first);

}  // namespace lockstep::parallel
