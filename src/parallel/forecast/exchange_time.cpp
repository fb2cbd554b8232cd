// SPDX-License-Identifier: Apache-2.0
#include "parallel/forecast/exchange_time.h"

#include <algorithm>

#include "lockstep/comm/detail/canonical_plan.h"
#include "parallel/forecast/virtual_link.h"

namespace lockstep::parallel {
namespace {

/// The rank that sends most: all others wait for it.
int64_t busiest_rank(const comm::CanonicalPlan& plan) {
  int64_t rank = 0;
  for (int64_t r = 1; r < plan.ranks(); ++r)
    if (plan.nodes_of(r) > plan.nodes_of(rank)) rank = r;
  return rank;
}

/// As comm/transport/canonical.cpp sends: while piece k is added up, piece k + 1 comes in and piece k - 1 goes out.
ExchangeTime canonical_time(const comm::CanonicalPlan& plan, int64_t element_bytes, const LinkCost& cost,
                            double add_byte) {
  const int64_t me = busiest_rank(plan);
  const auto sources = static_cast<double>(plan.nodes().size());
  VirtualLink link(cost);
  double added = 0;
  struct Round {
    int64_t messages = 0, bytes = 0;
  };
  const auto rounds = [&](int64_t piece) {
    const auto slices = plan.slices(piece);
    Round out, back;
    for (int64_t r = 0; r < plan.ranks(); ++r) {
      if (r == me) continue;
      out.messages += slices[r].size() > 0 ? plan.nodes_of(me) : 0;
      out.bytes += plan.nodes_of(me) * slices[r].size() * element_bytes;
      back.messages += slices[me].size() > 0;
      back.bytes += slices[me].size() * element_bytes;
    }
    return std::tuple(out, back, add_byte * sources * static_cast<double>(slices[me].size() * element_bytes));
  };
  auto [out, back, adding] = rounds(0);
  double now = 0, incoming = link.start(0, out.messages, out.bytes), returned = 0;
  for (int64_t piece = 0; piece < plan.pieces(); ++piece) {
    now = std::max(now, incoming);
    auto [next_out, next_back, next_adding] = piece + 1 < plan.pieces() ? rounds(piece + 1) : rounds(piece);
    if (piece + 1 < plan.pieces()) incoming = link.start(now, next_out.messages, next_out.bytes);
    now += adding;
    added += adding;
    if (!plan.is_small()) {
      const double last = returned;
      returned = link.start(now, back.messages, back.bytes);
      now = std::max(now, last);
    }
    std::tie(back, adding) = std::pair(next_back, next_adding);
  }
  return {std::max(now, returned), added + link.cpu_seconds(), link.bytes()};
}

/// The same for processes that meet by halves: a round ends before the next one begins.
ExchangeTime time_by_halves(const comm::CanonicalPlan& plan, int64_t element_bytes, const LinkCost& cost,
                            double add_byte) {
  VirtualLink link(cost);
  double now = 0, added = 0;
  const auto bytes_kept = [&](int64_t round) { return plan.kept(0, round).size() * element_bytes; };
  for (int64_t round = 0; round < plan.rounds(); ++round) {
    const double adding = 2 * add_byte * static_cast<double>(bytes_kept(round + 1));
    now = link.start(now, 1, bytes_kept(round + 1)) + adding;
    added += adding;
  }
  for (int64_t round = plan.is_small() ? 0 : plan.rounds(); round-- > 0;)
    now = link.start(now, 1, bytes_kept(round + 1));
  return {now, added + link.cpu_seconds(), link.bytes()};
}

/// P - 1 rounds that add up, and as many that return, each of a P-th of the tensor.
ExchangeTime ring_time(int64_t ranks, int64_t bytes, const LinkCost& cost, double add_byte) {
  VirtualLink link(cost);
  const int64_t part = (bytes + ranks - 1) / ranks;
  const double adding = 2 * add_byte * static_cast<double>(part);
  double now = 0, added = 0;
  for (int64_t round = 0; round < 2 * (ranks - 1); ++round) {
    now = link.start(now, 1, part);
    if (round >= ranks - 1) continue;
    now += adding;
    added += adding;
  }
  return {now, added + link.cpu_seconds(), link.bytes()};
}

}  // namespace

ExchangeTime exchange_time(const Placement& blocks, int64_t numel, int64_t element_bytes, Order order,
                           const LinkCost& link, double add_byte) {
  if (blocks.processes() == 1 || numel == 0) return {};
  if (order == Order::ring) return ring_time(blocks.processes(), numel * element_bytes, link, add_byte);
  const comm::CanonicalPlan plan(blocks, numel, element_bytes);
  return plan.meets_by_halves() ? time_by_halves(plan, element_bytes, link, add_byte)
                                : canonical_time(plan, element_bytes, link, add_byte);
}

double all_reduce_seconds(const Placement& blocks, int64_t numel, int64_t element_bytes, Order order,
                          const LinkCost& link, bool may_halve) {
  if (order == Order::canonical && !may_halve)
    return canonical_time(comm::CanonicalPlan(blocks, numel, element_bytes, false), element_bytes, link, 0).link;
  return exchange_time(blocks, numel, element_bytes, order, link, 0).link;
}

}  // namespace lockstep::parallel
