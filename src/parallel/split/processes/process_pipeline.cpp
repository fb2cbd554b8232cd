// SPDX-License-Identifier: Apache-2.0
#include "parallel/split/processes/process_pipeline.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/context/detail/autograd_node.h"
#include "lockstep/context/detail/context.h"
#include "lockstep/context/timeline_scope.h"
#include "lockstep/norm/sync_batch_norm.h"
#include "parallel/split/border.h"
#include "parallel/split/graph_walk.h"
#include "parallel/split/late_weights.h"
#include "parallel/split/pipeline.h"
#include "parallel/split/processes/messages/bundle_parcel.h"
#include "parallel/split/processes/messages/part_links.h"
#include "parallel/team/agreement.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// What a replica's messages are about. Gradients have tags of their own a pass, as several may be in flight.
enum Topic : int64_t { kForward, kOutput, kGradients };
constexpr int64_t kPasses = 6, kTopics = kGradients + kPasses;

bool reaches(const variable_list& from, const Node* to) {
  std::vector<Node*> starts;
  for (const at::Tensor& tensor : from)
    if (tensor.defined()) starts.push_back(tensor.grad_fn().get());
  return any_node_from(starts, [&](const Node* node) { return node == to; });
}

}  // namespace

class ProcessPipeline::Member : public Borders {
 public:
  Member(ProcessPipeline& pipeline, int64_t number) : pipeline_(pipeline), number_(number) {}

  bool come_to(size_t next, size_t stages, Bundle& bundle) override;

  /// Sends gradients back, and waits for those from ahead.
  void send_back(const variable_list& gradients, int64_t pass) {
    send(place().part - 1, kGradients + pass, {.tensors = gradients});
  }
  variable_list await_gradients(int64_t pass) {
    return await(place().part + 1, kGradients + pass, Pass::goes_on).tensors;
  }

  bool is_last() const { return place().is_last(); }
  void backward(const at::Tensor& loss, const at::Tensor& gradient);
  void end_backward() {
    outlets_ = 0;
    pipeline_.crew_.compute_late(number_);
  }

  void wait_for_sent() {
    for (; !sent_.empty(); sent_.pop_front()) sent_.front().wait();
  }

 private:
  const PartPlace& place() const { return pipeline_.place_; }
  int tag_of(int64_t topic) const { return static_cast<int>(number_ * kTopics + topic); }

  void send(int64_t part, int64_t topic, const Parcel& parcel) {
    const PhaseScope sending(Phase::exchange);
    while (!sent_.empty() && sent_.front().done()) {
      sent_.front().wait();  // it says whether it has failed
      sent_.pop_front();
    }
    for (comm::Work& work :
         post(pipeline_.messages_, place().rank_of(part), tag_of(topic), parcel, sends_[{part, topic}]))
      sent_.push_back(std::move(work));
  }

  void expect(int64_t part, int64_t topic) {
    parallel::expect(pipeline_.messages_, place().rank_of(part), tag_of(topic), receives_[{part, topic}]);
  }

  Parcel await(int64_t part, int64_t topic, Pass pass) {
    const PhaseScope waiting(Phase::wait, "another part of the network");  // whom it lets go on may take its core
    pipeline_.crew_.go_outside(number_);
    Parcel parcel = receive(pipeline_.messages_, place().rank_of(part), tag_of(topic), receives_[{part, topic}]);
    pipeline_.crew_.come_inside(number_, pass);
    return parcel;
  }

  void receive_from_behind(Bundle& bundle);
  void hand_on(const Bundle& bundle);
  void exchange_output(Bundle& bundle);
  NodePointer<Node> make_outlet(const variable_list& ends);
  bool go_back_in_halves(const at::Tensor& loss, const at::Tensor& gradient, Outlet& outlet);
  void check_connected(const variable_list& ends, const char* what) const;

  ProcessPipeline& pipeline_;
  const int64_t number_;
  int64_t pass_ = 0;         // of those that keep activations, for tags
  NodePointer<Node> inlet_;  // of this pass; none where nobody waits for gradients
  variable_list handed_on_;  // with a gradient
  NodePointer<Outlet> outlet_;
  int64_t outlets_ = 0;  // since the last backward pass
  std::optional<Crossing> crossing_;
  std::deque<comm::Work> sent_;
  std::map<std::pair<int64_t, int64_t>, FirstMessage> sends_;  // by part and topic
  std::map<std::pair<int64_t, int64_t>, Arrival> receives_;
};

/// Stands for all that lies in the parts in front: what comes to it goes to them.
class ProcessPipeline::Inlet : public Node {
 public:
  Inlet(Member& member, int64_t pass) : member_(member), pass_(pass) {}

  variable_list apply(variable_list&& gradients) override {
    member_.send_back(gradients, pass_);
    return {};
  }

 private:
  Member& member_;
  const int64_t pass_;
};

/// Stands behind the network's output, and goes back through this part. The gradients at its ends come from the parts
/// ahead: that of the output, which this process has computed too, is not needed.
class ProcessPipeline::Outlet : public Node {
 public:
  Outlet(Member& member, int64_t pass, const variable_list& ends) : member_(member), pass_(pass) {
    for (const at::Tensor& end : ends) add_next_edge(torch::autograd::impl::gradient_edge(end));
  }

  variable_list apply(variable_list&& of_output) override {
    of_output_ = std::move(of_output);
    if (keeps_ || num_outputs() == 0) return variable_list(num_outputs());
    return gradients();
  }

  /// From now on it keeps what comes to it.
  void keep() { keeps_ = true; }
  bool has_run() const { return of_output_.has_value(); }
  /// Those at the part's ends.
  variable_list gradients() { return member_.is_last() ? std::move(*of_output_) : member_.await_gradients(pass_); }

 private:
  Member& member_;
  const int64_t pass_;
  bool keeps_ = false;
  std::optional<variable_list> of_output_;
};

bool ProcessPipeline::Member::come_to(size_t next, size_t stages, Bundle& bundle) {
  require(stages == pipeline_.stages_, "forward", "the network went through ", stages, " stages, expected the ",
          pipeline_.stages_, " of the one that was shared");
  const bool keeps = at::GradMode::is_enabled();
  if (next == 0) {
    pipeline_.decide(number_, &bundle);
    if (keeps) pass_ = (pass_ + 1) % kPasses;
    inlet_ = {};
    outlet_ = {};
    crossing_.emplace(place().part);
    for (const std::string& name : bundle.names())
      if (const CarriedType& type = bundle.type(name); type.enter != nullptr)
        type.enter(bundle.value(name), *crossing_);
    if (keeps && place().part == 0) pipeline_.crew_.come_to(number_, 0);
  }
  const auto& first = pipeline_.cut_.first;
  const auto begin = static_cast<size_t>(first[place().part]);
  const size_t end = place().is_last() ? stages : static_cast<size_t>(first[place().part + 1]);
  if (next == begin && place().part > 0) receive_from_behind(bundle);
  if (next == end && !place().is_last()) hand_on(bundle);
  if (next == stages) {
    exchange_output(bundle);
    crossing_.reset();
  }
  return begin <= next && next < end;
}

void ProcessPipeline::Member::receive_from_behind(Bundle& bundle) {
  const bool keeps = at::GradMode::is_enabled();
  bundle = {};  // what was put in is not needed here
  const Parcel parcel = await(place().part - 1, kForward, keeps ? Pass::begins : Pass::keeps_nothing);
  variable_list inputs = with_gradients(parcel);
  if (!inputs.empty() && keeps) {
    sends_[{place().part - 1, kGradients + pass_}].foresee_gradients(inputs);
    const auto inlet = make_node<Inlet>(*this, pass_);
    torch::autograd::set_history(inputs, inlet);
    inlet_ = inlet;
  }
  bundle = bundle_of(parcel, *crossing_, place().part - 1);
  Context::current().before_wait.reset();  // what lies behind does not wait for what lies in front
}

void ProcessPipeline::Member::hand_on(const Bundle& bundle) {
  const Parcel parcel = parcel_of(bundle, *crossing_, place().part + 1);
  handed_on_ = with_gradients(parcel);
  check_connected(handed_on_, "what this part hands on");
  expect(place().parts - 1, kOutput);
  if (at::GradMode::is_enabled() && !handed_on_.empty()) {
    receives_[{place().part + 1, kGradients + pass_}].first.foresee_gradients(handed_on_);
    expect(place().part + 1, kGradients + pass_);
  }
  send(place().part + 1, kForward, parcel);
}

void ProcessPipeline::Member::exchange_output(Bundle& bundle) {
  const bool keeps = at::GradMode::is_enabled();
  if (place().is_last()) {
    check_connected(bundle.tensors(), "the network's output");
    std::vector<at::Tensor> copies;
    for (int64_t part = 0; part < place().part; ++part) {
      Parcel parcel = parcel_of(bundle, *crossing_, part);
      if (part == 0) copies = copies_of_features(parcel);
      std::ranges::copy(copies, parcel.tensors.begin());
      send(part, kOutput, parcel);
    }
    if (keeps) give_history(bundle, [&](const variable_list& ends) { return make_outlet(ends); });
    return;
  }
  const Parcel parcel = await(place().parts - 1, kOutput, keeps ? Pass::goes_on : Pass::keeps_nothing);
  if (variable_list outputs = with_gradients(parcel); !outputs.empty() && keeps)
    torch::autograd::set_history(outputs, make_outlet(handed_on_));
  handed_on_.clear();
  bundle = bundle_of(parcel, *crossing_, place().parts - 1);
}

NodePointer<Node> ProcessPipeline::Member::make_outlet(const variable_list& ends) {
  outlet_ = make_node<Outlet>(*this, pass_, ends);
  ++outlets_;
  return outlet_;
}

void ProcessPipeline::Member::backward(const at::Tensor& loss, const at::Tensor& gradient) {
  const auto outlet = std::exchange(outlet_, {});
  if (outlets_ != 1 || !outlet || !go_back_in_halves(loss, gradient, *outlet))
    torch::autograd::backward({loss}, {gradient});
}

// Not where the loss and the part share a weight, whose gradients are added up in one pass.
bool ProcessPipeline::Member::go_back_in_halves(const at::Tensor& loss, const at::Tensor& gradient, Outlet& outlet) {
  const std::array parts{PartGraph({torch::autograd::impl::gradient_edge(loss)}, &outlet),
                         PartGraph(outlet.next_edges(), inlet_.get())};
  if (PartGraph::share_weights(parts)) return false;
  outlet.keep();
  LateWeights late;
  parts[0].go_back({gradient}, late);
  if (outlet.has_run() && outlet.num_outputs() > 0) parts[1].go_back(outlet.gradients(), late);
  pipeline_.crew_.leave_late(number_, 0, std::move(late));
  return true;
}

// The part behind will wait for gradients.
void ProcessPipeline::Member::check_connected(const variable_list& ends, const char* what) const {
  require(!inlet_ || reaches(ends, inlet_.get()), "forward", what,
          " has no history that leads back to the part behind, which waits for gradients, expected stages that don't "
          "detach what they are given: use --split data");
}

ProcessPipeline::ProcessPipeline(Crew& crew, const PartPlace& place, comm::Group messages)
    : crew_(crew), place_(place), messages_(std::move(messages)) {
  for (int64_t m = 0; m < crew.members(); ++m) members_.push_back(std::make_unique<Member>(*this, m));
}

ProcessPipeline::~ProcessPipeline() = default;

void ProcessPipeline::take(const std::vector<std::shared_ptr<torch::nn::Module>>& networks,
                           const std::vector<at::Tensor>& parameters) {
  require(networks_.empty(), "share", "a second network was shared, and split p", place_.parts,
          " divides one, expected one network: --split data has several");
  stages_ = make_divisible(networks, place_.parts).size();
  networks_ = networks;
  parameters_ = parameters;
  if (norm::has_synchronised(*networks[0])) crew_.let_all_come();
}

Borders* ProcessPipeline::borders(int64_t member) {
  return members_[member].get();
}

void ProcessPipeline::backward(int64_t member, const at::Tensor& loss, const at::Tensor& gradient) {
  members_[member]->backward(loss, gradient);
}

void ProcessPipeline::end_backward(int64_t member) {
  members_[member]->end_backward();
  crew_.end_pass(member);
}

void ProcessPipeline::leave(int64_t member) {
  members_[member]->wait_for_sent();
}

void ProcessPipeline::learn_cut() {
  decide(0, nullptr);
}

// Times differ from process to process, so one decides: the first, whose first replica never has an empty share.
void ProcessPipeline::decide(int64_t member, const Bundle* bundle) {
  const std::lock_guard lock(deciding_);
  if (cut() != nullptr) return;
  std::string said;
  const std::vector<double> seconds_a_byte =
      measure_links(messages_, place_, static_cast<int>(crew_.members() * kTopics));
  if (messages_.rank() == 0) try {
      require(bundle != nullptr, "step", "no replica of process 0 has gone through the network, and split p",
              place_.parts, " cuts it there, expected a forward pass before the first step");
      // Parameters are told apart by their number: member 0's are in the order of any member's.
      auto parameters = parameters_;
      if (member > 0) {
        std::set<const c10::TensorImpl*> known;
        parameters.clear();
        for (const at::Tensor& parameter : networks_[member]->parameters())
          if (known.insert(parameter.unsafeGetTensorImpl()).second) parameters.push_back(parameter);
      }
      said = text('+', cut_for_processes(*networks_[member], parameters, *bundle, seconds_a_byte, unfilled_).to_text());
    } catch (const std::exception& error) {
      said = text('-', error.what());
    }
  said = broadcast_text(messages_, said, 0);
  if (said[0] == '-') throw Error(said.substr(1));
  cut_ = ProcessCut::from_text(said.substr(1));
  fill_own();
}

// Kernels of other processors may draw other numbers: the first copy's count.
void ProcessPipeline::fill_own() {
  std::vector<at::Tensor> filled;
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (ProcessCut::holds(place_.part, cut_.parameters[p]) && !unfilled_.recipe(parameters_[p]).empty()) {
      unfilled_.fill(parameters_[p]);
      filled.push_back(parameters_[p].detach());
    }
  const auto copies = messages_.size() / place_.parts;
  const int tag = static_cast<int>(crew_.members() * kTopics);
  for (int64_t copy = 1; copy < copies; ++copy) {
    if (place_.copy != 0 && place_.copy != copy) continue;
    for (const at::Tensor& weight : filled) {
      const auto other = static_cast<int>((place_.copy == 0 ? copy : 0) * place_.parts + place_.part);
      (place_.copy == 0 ? messages_.send(weight, other, tag) : messages_.recv(weight, other, tag)).wait();
    }
  }
}

}  // namespace lockstep::parallel
