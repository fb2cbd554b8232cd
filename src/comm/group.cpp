// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/group.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "comm/backend.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

bool reduces(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce_scatter;
}

bool is_supported(Kind kind, at::ScalarType dtype) {
  if (dtype == at::kByte) return !reduces(kind);
  return is_reducible(dtype);
}

// A call in the making: checks its tensors, makes them contiguous and remembers what to copy back.
class Draft {
 public:
  Draft(const Backend& backend, Kind kind, const CallOptions& options) : backend_(backend) {
    call_.kind = kind;
    call_.order = options.order;
    call_.timeout = std::min(options.timeout.count() > 0 ? options.timeout : backend.timeout(), kLongestWait);
  }

  Call& call() { return call_; }

  void input(const at::Tensor& tensor) {
    check(tensor, "input");
    call_.inputs.push_back(tensor.detach().contiguous());
  }

  void output(const at::Tensor& tensor) {
    check(tensor, "output");
    call_.outputs.push_back(result_for(tensor));
  }

  void in_place(const at::Tensor& tensor) {
    check(tensor, "tensor");
    const auto buffer = tensor.detach().contiguous();
    if (!tensor.is_contiguous()) copies_.emplace_back(tensor, buffer);
    call_.inputs.push_back(buffer);
    call_.outputs.push_back(buffer);
  }

  void reduction(ReduceOp op) {
    call_.op = op;
    for (const auto& tensor : call_.inputs)
      require(op != ReduceOp::mean || at::isFloatingType(tensor.scalar_type()), name(), "mean of ",
              tensor.scalar_type(), ", expected a floating-point dtype");
  }

  void peer(int rank, const char* what) {
    require(0 <= rank && rank < backend_.size(), name(), what, " is rank ", rank, ", expected 0 to ",
            backend_.size() - 1);
    call_.peer = rank;
  }

  // The larger side is `size` times the smaller one.
  void parts(const at::Tensor& whole, const at::Tensor& part) {
    require(whole.numel() == part.numel() * backend_.size() && whole.scalar_type() == part.scalar_type(), name(),
            "got ", whole.scalar_type(), whole.sizes(), " for ", backend_.size(), " parts of ", part.scalar_type(),
            part.sizes(), ", expected the same dtype and ", backend_.size(), " times the elements");
  }

  Work post(Backend& backend) {
    std::function<void()> finish;
    if (!copies_.empty())
      finish = [copies = std::move(copies_)] {
        const at::NoGradGuard no_grad;
        for (const auto& [to, from] : copies) to.copy_(from);
      };
    return Work(backend.post(std::move(call_)), std::move(finish));
  }

 private:
  const char* name() const { return name_of(call_.kind); }

  void check(const at::Tensor& tensor, const char* what) const {
    require(tensor.defined(), name(), what, " is undefined, expected a tensor");
    require(tensor.layout() == at::kStrided, name(), what, " has layout ", tensor.layout(),
            ", expected a dense tensor");
    require(is_supported(call_.kind, tensor.scalar_type()), name(), what, " has dtype ", tensor.scalar_type(),
            ", expected float32, float64, float16, bfloat16, int32, int64 or bool",
            reduces(call_.kind) ? "" : ", or uint8");
    require(tensor.is_cpu() || tensor.is_cuda(), name(), what, " is on ", tensor.device(), ", expected cpu or cuda");
  }

  at::Tensor result_for(const at::Tensor& tensor) {
    if (tensor.is_contiguous()) return tensor.detach();
    const auto buffer = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
    copies_.emplace_back(tensor, buffer);
    return buffer;
  }

  const Backend& backend_;
  Call call_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

int64_t row_elements(const at::Tensor& tensor) {
  int64_t elements = 1;
  for (int64_t d = 1; d < tensor.dim(); ++d) elements *= tensor.size(d);
  return elements;
}

// Rows for each rank, as elements.
std::vector<int64_t> element_counts(const at::Tensor& tensor, std::span<const int64_t> rows, int size,
                                    const char* what) {
  require(static_cast<int>(rows.size()) == size, "all_to_all", "got ", rows.size(), " ", what, ", expected ", size);
  std::vector<int64_t> counts;
  int64_t sum = 0;
  for (int64_t count : rows) {
    require(count >= 0, "all_to_all", what, " hold ", count, ", expected 0 or more");
    sum += count;
    counts.push_back(count * row_elements(tensor));
  }
  const int64_t have = tensor.dim() == 0 ? 1 : tensor.size(0);
  require(sum == have, "all_to_all", what, " add up to ", sum, " rows, the tensor has ", have);
  return counts;
}

}  // namespace

Order parse_order(const std::string& text) {
  require(text == "canonical" || text == "ring", "parse_order", "the order of additions is '", text,
          "', expected canonical or ring");
  return text == "ring" ? Order::ring : Order::canonical;
}

Group::Group() : Group(local_groups(1)[0]) {}
Group::Group(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

int Group::rank() const {
  return backend_->rank();
}
int Group::size() const {
  return backend_->size();
}
std::string Group::backend() const {
  return backend_->name();
}
std::chrono::milliseconds Group::timeout() const {
  return backend_->timeout();
}

bool Group::may_lose_members() const {
  return backend_->may_lose_members();
}

int64_t Group::bytes_sent() const {
  return backend_->bytes_sent();
}

Work Group::all_reduce(const TensorList& tensors, ReduceOp op, CallOptions options) const {
  Draft draft(*backend_, Kind::all_reduce, options);
  for (const auto& tensor : tensors) draft.in_place(tensor);
  draft.reduction(op);
  return draft.post(*backend_);
}

Work Group::all_reduce(const at::Tensor& tensor, ReduceOp op, CallOptions options) const {
  return all_reduce(TensorList{tensor}, op, options);
}

Work Group::all_reduce_blocks(const Placement& placement, const TensorList& nodes, const at::Tensor& result,
                              ReduceOp op, CallOptions options) const {
  constexpr const char* name = "all_reduce_blocks";
  require(placement.processes() == size(), name, "placement has ", placement.processes(), " blocks for ", size(),
          " ranks, expected one a rank");
  const auto expected = block_nodes(placement.replicas(), placement.block(rank())).size();
  require(nodes.size() == expected, name, "got ", nodes.size(), " nodes, expected ", expected);
  require(op != ReduceOp::mean, name, "op is mean, expected sum, min or max");
  require(backend() != "local" && backend() != "hierarchical", name, "backend is ", backend(),
          ", expected one that joins processes");
  for (const auto& node : nodes)
    require(node.is_contiguous() && result.is_contiguous() && node.sizes() == result.sizes() &&
                node.scalar_type() == result.scalar_type(),
            name, "a node is ", node.scalar_type(), node.sizes(), " for a result of ", result.scalar_type(),
            result.sizes(), ", expected contiguous tensors of one size and dtype");
  Draft draft(*backend_, Kind::all_reduce, options);
  for (const auto& node : nodes) draft.input(node);
  draft.output(result);
  draft.call().placement = placement;
  draft.reduction(op);
  return draft.post(*backend_);
}

Work Group::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op, CallOptions options) const {
  Draft draft(*backend_, Kind::reduce_scatter, options);
  draft.input(input);
  draft.output(output);
  draft.parts(input, output);
  draft.reduction(op);
  return draft.post(*backend_);
}

Work Group::all_gather(const TensorList& outputs, const TensorList& inputs, CallOptions options) const {
  require(outputs.size() == inputs.size(), "all_gather", "got ", outputs.size(), " outputs for ", inputs.size(),
          " inputs");
  Draft draft(*backend_, Kind::all_gather, options);
  for (size_t t = 0; t < inputs.size(); ++t) {
    draft.input(inputs[t]);
    draft.output(outputs[t]);
    draft.parts(outputs[t], inputs[t]);
  }
  return draft.post(*backend_);
}

Work Group::all_gather(const at::Tensor& output, const at::Tensor& input, CallOptions options) const {
  return all_gather(TensorList{output}, TensorList{input}, options);
}

Work Group::gather(const at::Tensor& output, const at::Tensor& input, int root, CallOptions options) const {
  Draft draft(*backend_, Kind::gather, options);
  draft.peer(root, "root");
  draft.input(input);
  if (rank() == root) {
    draft.output(output);
    draft.parts(output, input);
  }
  return draft.post(*backend_);
}

Work Group::scatter(const at::Tensor& output, const at::Tensor& input, int root, CallOptions options) const {
  Draft draft(*backend_, Kind::scatter, options);
  draft.peer(root, "root");
  draft.output(output);
  if (rank() == root) {
    draft.input(input);
    draft.parts(input, output);
  }
  return draft.post(*backend_);
}

Work Group::broadcast(const TensorList& tensors, int root, CallOptions options) const {
  Draft draft(*backend_, Kind::broadcast, options);
  draft.peer(root, "root");
  for (const auto& tensor : tensors) draft.in_place(tensor);
  return draft.post(*backend_);
}

Work Group::broadcast(const at::Tensor& tensor, int root, CallOptions options) const {
  return broadcast(TensorList{tensor}, root, options);
}

Work Group::all_to_all(const at::Tensor& output, const at::Tensor& input, CallOptions options) const {
  const auto even = [&](const at::Tensor& tensor, const char* what) {
    require(tensor.defined() && tensor.dim() > 0 && tensor.size(0) % size() == 0, "all_to_all", what,
            " has no rows that divide by ", size(), " ranks; pass counts for uneven parts");
    return std::vector<int64_t>(size(), tensor.size(0) / size());
  };
  return all_to_all(output, input, even(output, "output"), even(input, "input"), options);
}

Work Group::all_to_all(const at::Tensor& output, const at::Tensor& input, std::span<const int64_t> output_counts,
                       std::span<const int64_t> input_counts, CallOptions options) const {
  Draft draft(*backend_, Kind::all_to_all, options);
  draft.input(input);
  draft.output(output);
  require(output.scalar_type() == input.scalar_type(), "all_to_all", "output is ", output.scalar_type(),
          ", expected the input's ", input.scalar_type());
  require(output.numel() == 0 || output.const_data_ptr() != input.const_data_ptr(), "all_to_all",
          "output is the input, expected another tensor");
  draft.call().output_counts = element_counts(output, output_counts, size(), "output_counts");
  draft.call().input_counts = element_counts(input, input_counts, size(), "input_counts");
  return draft.post(*backend_);
}

Work Group::send(const at::Tensor& tensor, int to, int tag, CallOptions options) const {
  Draft draft(*backend_, Kind::send, options);
  draft.peer(to, "receiver");
  draft.call().tag = tag;
  draft.input(tensor);
  return draft.post(*backend_);
}

Work Group::recv(const at::Tensor& tensor, int from, int tag, CallOptions options) const {
  Draft draft(*backend_, Kind::recv, options);
  draft.peer(from, "sender");
  draft.call().tag = tag;
  draft.output(tensor);
  return draft.post(*backend_);
}

Work Group::barrier(CallOptions options) const {
  return Draft(*backend_, Kind::barrier, options).post(*backend_);
}

Group Group::split(int color, int key) const {
  const auto mine = at::tensor({static_cast<int64_t>(color), static_cast<int64_t>(key)}, at::kLong);
  auto all = at::empty({size(), 2}, at::TensorOptions(at::kLong).device(backend_->device()));
  all_gather(all, mine.to(backend_->device())).wait();
  all = all.cpu();
  const int number = backend_->splits++;
  if (color < 0) return Group();
  const auto row = all.accessor<int64_t, 2>();
  std::vector<int> members;
  for (int r = 0; r < size(); ++r)
    if (row[r][0] == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return row[a][1] < row[b][1]; });
  auto made = backend_->subgroup(members, number);
  backend_->add_split(made);
  return Group(std::move(made));
}

void Group::finish() const {
  barrier().wait();
}

void Group::abort(const std::string& reason) const {
  backend_->abort_all(reason);
}

std::chrono::milliseconds default_timeout() {
  const char* text = std::getenv("LOCKSTEP_TIMEOUT");
  if (text == nullptr || *text == '\0') return std::chrono::minutes(5);
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  require(*end == '\0' && std::isfinite(seconds) && seconds > 0, "LOCKSTEP_TIMEOUT", "got '", text,
          "', expected seconds, more than 0");
  const double longest = std::chrono::duration<double>(kLongestWait).count();
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(seconds, longest) * 1000));
}

}  // namespace lockstep::comm
