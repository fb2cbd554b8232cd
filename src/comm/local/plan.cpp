// SPDX-License-Identifier: Apache-2.0
#include "comm/local/plan.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::comm::local {
namespace {

const std::byte* data(const at::Tensor& tensor, int64_t element = 0) {
  return static_cast<const std::byte*>(tensor.const_data_ptr()) + element * tensor.element_size();
}

std::byte* mutable_data(const at::Tensor& tensor, int64_t element = 0) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr()) + element * tensor.element_size();
}

class Planner {
 public:
  explicit Planner(const std::vector<Call>& calls) : calls_(calls), size_(static_cast<int>(calls.size())) {}

  std::vector<Job> run() {
    switch (calls_[0].kind) {
      case Kind::all_reduce:
        all_reduce();
        break;
      case Kind::reduce_scatter:
        for (int to = 0; to < size_; ++to) reduce_part(to);
        break;
      case Kind::all_gather:
        for (size_t t = 0; t < calls_[0].inputs.size(); ++t)
          for (int to = 0; to < size_; ++to) gather_to(to, t);
        break;
      case Kind::gather:
        gather_to(calls_[0].peer, 0);
        break;
      case Kind::scatter:
        scatter();
        break;
      case Kind::broadcast:
        broadcast();
        break;
      case Kind::all_to_all:
        all_to_all();
        break;
      case Kind::reduce_nodes:
        reduce_nodes();
        break;
      case Kind::send:
        copy(calls_[0].inputs[0], 0, calls_[1].outputs[0], 0, calls_[0].inputs[0].numel());
        break;
      case Kind::recv:
      case Kind::barrier:
        break;
    }
    return std::move(jobs_);
  }

 private:
  void add(Job job, const TensorList& outputs) {
    for (const auto& output : outputs)
      if (output.is_cuda()) job.devices.push_back(output.get_device());
    jobs_.push_back(std::move(job));
  }

  void copy(const at::Tensor& from, int64_t from_element, const at::Tensor& to, int64_t to_element, int64_t count) {
    const auto* source = data(from, from_element);
    auto* destination = mutable_data(to, to_element);
    if (count > 0 && source != destination)
      add({{source}, {destination}, count * static_cast<int64_t>(from.element_size())}, {to});
  }

  void all_reduce() {
    for (size_t t = 0; t < calls_[0].inputs.size(); ++t) {
      const at::Tensor& first = calls_[0].inputs[t];
      Job job{{}, {}, first.numel(), first.scalar_type(), calls_[0].op};
      for (const Call& call : calls_) {
        job.sources.push_back(data(call.inputs[t]));
        job.destinations.push_back(mutable_data(call.outputs[t]));
      }
      TensorList outputs;
      for (const Call& call : calls_) outputs.push_back(call.outputs[t]);
      if (job.count > 0) add(std::move(job), outputs);
    }
  }

  void reduce_nodes() {
    const Call& leader = calls_[calls_[0].peer];
    const at::Tensor& first = leader.inputs[0];
    Job job{{}, {}, first.numel(), first.scalar_type(), leader.op, leader.placement.replicas(), leader.block};
    for (const Call& call : calls_) job.sources.push_back(data(call.inputs[0]));
    for (const auto& node : leader.outputs) job.destinations.push_back(mutable_data(node));
    if (job.count > 0) add(std::move(job), leader.outputs);
  }

  void reduce_part(int to) {
    const at::Tensor& output = calls_[to].outputs[0];
    Job job{{}, {mutable_data(output)}, output.numel(), output.scalar_type(), calls_[0].op};
    for (const Call& call : calls_) job.sources.push_back(data(call.inputs[0], to * output.numel()));
    if (job.count > 0) add(std::move(job), {output});
  }

  void gather_to(int to, size_t t) {
    for (int from = 0; from < size_; ++from) {
      const at::Tensor& input = calls_[from].inputs[t];
      copy(input, 0, calls_[to].outputs[t], from * input.numel(), input.numel());
    }
  }

  void scatter() {
    for (int to = 0; to < size_; ++to) {
      const at::Tensor& output = calls_[to].outputs[0];
      copy(calls_[calls_[0].peer].inputs[0], to * output.numel(), output, 0, output.numel());
    }
  }

  void broadcast() {
    const Call& root = calls_[calls_[0].peer];
    for (size_t t = 0; t < root.inputs.size(); ++t) {
      const at::Tensor& from = root.inputs[t];
      Job job{{data(from)}, {}, static_cast<int64_t>(from.nbytes())};
      TensorList outputs;
      for (const Call& call : calls_) {
        if (&call == &root) continue;
        outputs.push_back(call.outputs[t]);
        job.destinations.push_back(mutable_data(outputs.back()));
      }
      if (job.count > 0 && size_ > 1) add(std::move(job), outputs);
    }
  }

  void all_to_all() {
    std::vector<int64_t> at_output(size_, 0);
    for (int from = 0; from < size_; ++from) {
      int64_t at_input = 0;
      for (int to = 0; to < size_; ++to) {
        const int64_t count = calls_[from].input_counts[to];
        copy(calls_[from].inputs[0], at_input, calls_[to].outputs[0], at_output[to], count);
        at_input += count;
        at_output[to] += count;
      }
    }
  }

  const std::vector<Call>& calls_;
  const int size_;
  std::vector<Job> jobs_;
};

std::optional<Mismatch> find_message_mismatch(const Call& send, const Call& recv) {
  const at::Tensor &from = send.inputs[0], &to = recv.outputs[0];
  if (from.numel() == to.numel() && from.scalar_type() == to.scalar_type()) return std::nullopt;
  return Mismatch{recv.peer, text("got a message of another size or dtype: rank ", recv.peer, " called ",
                                  describe(send), ", rank ", send.peer, " called ", describe(recv))};
}

// Compares what signature() writes down, without writing it: this is on the way of every operation.
bool agree(const Call& a, const Call& b) {
  if (a.kind != b.kind || a.peer != b.peer || a.op != b.op || a.order != b.order) return false;
  const TensorList& x = a.kind == Kind::scatter ? a.outputs : a.inputs;
  const TensorList& y = b.kind == Kind::scatter ? b.outputs : b.inputs;
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [&](const at::Tensor& s, const at::Tensor& t) {
    return s.scalar_type() == t.scalar_type() && s.device().type() == t.device().type() &&
           (a.kind == Kind::all_to_all || s.numel() == t.numel());
  });
}

std::optional<Mismatch> find_uneven_parts(const std::vector<Call>& calls) {
  for (size_t from = 0; from < calls.size(); ++from)
    for (size_t to = 0; to < calls.size(); ++to)
      if (calls[from].input_counts[to] != calls[to].output_counts[from])
        return Mismatch{static_cast<int>(from),
                        text("all_to_all: rank ", from, " sends ", calls[from].input_counts[to], " elements to rank ",
                             to, ", which expects ", calls[to].output_counts[from])};
  return std::nullopt;
}

}  // namespace

std::vector<Job> plan(const std::vector<Call>& calls) {
  return Planner(calls).run();
}

std::optional<Mismatch> find_mismatch(const std::vector<Call>& calls) {
  if (calls[0].kind == Kind::send) return find_message_mismatch(calls[0], calls[1]);
  for (size_t r = 1; r < calls.size(); ++r)
    if (!agree(calls[0], calls[r]))
      return Mismatch{static_cast<int>(r), text("ranks called different operations: rank 0 called ", describe(calls[0]),
                                                ", rank ", r, " called ", describe(calls[r]))};
  if (calls[0].kind == Kind::all_to_all) return find_uneven_parts(calls);
  return std::nullopt;
}

}  // namespace lockstep::comm::local
