// SPDX-License-Identifier: Apache-2.0
#include "comm/backend.h"

#include <c10/core/ScalarType.h>

#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::comm {

const char* name_of(Kind kind) {
  constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "gather", "scatter", "broadcast",
                                   "all_to_all", "reduce_nodes",   "send",       "recv",   "barrier"};
  return names[static_cast<int>(kind)];
}

namespace {

// A long list of tensors is told by its first three.
void write_tensors(std::ostream& out, const TensorList& tensors) {
  for (size_t t = 0; t < tensors.size() && t < 3; ++t)
    out << (t > 0 ? ", " : "") << tensors[t].scalar_type() << "[" << tensors[t].numel() << "]";
  if (tensors.size() > 3) out << ", ... " << tensors.size() << " tensors";
}

bool is_reduction(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce_scatter || kind == Kind::reduce_nodes;
}

}  // namespace

std::string describe(const Call& call) {
  std::ostringstream out;
  out << name_of(call.kind) << "(";
  if (is_reduction(call.kind)) out << name_of(call.op) << ", ";
  write_tensors(out, call.inputs.empty() ? call.outputs : call.inputs);
  if (call.kind == Kind::send) out << ", to " << call.peer << ", tag " << call.tag;
  if (call.kind == Kind::recv) out << ", from " << call.peer << ", tag " << call.tag;
  if (call.peer >= 0 && call.kind < Kind::send) out << ", root " << call.peer;
  out << ")";
  return std::move(out).str();
}

std::string signature(const Call& call) {
  std::ostringstream out;
  out << name_of(call.kind) << " " << call.peer;
  if (is_reduction(call.kind)) out << " " << name_of(call.op) << " " << static_cast<int>(call.order);
  // The part that every rank has: a scatter's output, a gather's input, one result where ranks contribute different
  // numbers of nodes. An all_to_all's parts are compared in pairs.
  const bool blocks = call.placement.processes() > 0;
  const TensorList& tensors = call.kind == Kind::scatter || blocks ? call.outputs : call.inputs;
  if (blocks) out << " of " << call.placement.replicas();
  for (const auto& tensor : tensors) {
    out << " " << tensor.scalar_type() << " " << tensor.device().type();
    if (call.kind != Kind::all_to_all) out << " " << tensor.numel();
  }
  return std::move(out).str();
}

std::string broken_message(const std::string& operation, const std::string& reason) {
  return text(operation, ": the group is broken by an earlier failure (", reason, ")");
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Backend::abort_all(const std::string& reason) noexcept {
  std::vector<std::weak_ptr<Backend>> groups;
  {
    const Lock lock(mutex_);
    groups.swap(split_off_);
    aborted_ = reason.empty() ? "aborted" : reason;
  }
  abort(reason);
  for (const auto& group : groups)
    if (const auto held = group.lock()) held->abort_all(reason);
}

void Backend::add_split(const std::shared_ptr<Backend>& group) {
  std::string aborted;
  {
    const Lock lock(mutex_);
    std::erase_if(split_off_, [](const auto& other) { return other.expired(); });
    split_off_.push_back(group);
    aborted = aborted_;
  }
  if (!aborted.empty()) group->abort_all(aborted);  // it was, while they were split
}

}  // namespace lockstep::comm
