// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/algorithms.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <numeric>

#include "comm/device.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

// From here on a broadcast is cut up: the root sends each byte about twice instead of once to everybody.
constexpr int64_t kLargeBroadcastBytes = 64 << 10;

class Collective {
 public:
  Collective(Transport& transport, const Call& call, Clock::time_point deadline)
      : transport_(transport), call_(call), deadline_(deadline), me_(transport.rank()), size_(transport.size()) {}

  void run() {
    switch (call_.kind) {
      case Kind::all_reduce:
        return all_reduce();
      case Kind::reduce_scatter:
        return reduce_scatter();
      case Kind::all_gather:
        return gather_to_all();
      case Kind::gather:
        return gather();
      case Kind::scatter:
        return scatter();
      case Kind::broadcast:
        return broadcast();
      case Kind::all_to_all:
        return all_to_all();
      case Kind::barrier:
        return barrier();
      case Kind::reduce_nodes:
      case Kind::send:
      case Kind::recv:
        LOCKSTEP_ASSERT(!"no collective between processes");
    }
  }

 private:
  using Messages = std::vector<Message>;

  void round(Messages sends, Messages receives) {
    exchange(transport_, std::move(sends), std::move(receives), deadline_);
  }

  static at::Tensor rows(const at::Tensor& flat, int64_t row, int64_t length) {
    return flat.narrow(0, row * length, length);
  }

  static void copy(const at::Tensor& to, const at::Tensor& from) {
    if (to.numel() > 0 && to.const_data_ptr() != from.const_data_ptr()) to.copy_(from);
  }

  // A list is joined by dtype, so that it costs one round; a single tensor is worked on where it is.
  void all_reduce() {
    if (call_.placement.processes() > 0)
      return canonical_all_reduce(transport_, call_.placement, call_.inputs, call_.outputs[0], call_.op, deadline_);
    std::map<at::ScalarType, TensorList> by_dtype;
    for (const auto& tensor : call_.inputs) by_dtype[tensor.scalar_type()].push_back(tensor.flatten());
    for (const auto& [dtype, parts] : by_dtype) {
      if (parts.size() == 1) {
        reduce_flat(parts[0]);
        continue;
      }
      const auto joined = at::cat(parts);
      reduce_flat(joined);
      int64_t at = 0;
      for (const auto& part : parts) {
        part.copy_(joined.narrow(0, at, part.numel()));
        at += part.numel();
      }
    }
  }

  void reduce_flat(const at::Tensor& flat) {
    if (flat.numel() == 0) return;
    if (call_.order == Order::ring && transport_.ring_all_reduce(flat, call_.op, deadline_)) return;
    canonical_all_reduce(transport_, Placement::even(size_, size_), {flat}, flat, call_.op, deadline_);
  }

  void reduce_scatter() {
    const auto input = call_.inputs[0].flatten(), output = call_.outputs[0].flatten();
    const int64_t length = output.numel();
    const auto scratch = at::empty({size_, length}, output.options());
    Messages sends, receives;
    TensorList sources;
    for (int r = 0; r < size_; ++r) {
      sources.push_back(r == me_ ? rows(input, me_, length) : scratch[r]);
      if (r == me_) continue;
      sends.push_back({r, rows(input, r, length)});
      receives.push_back({r, scratch[r]});
    }
    round(std::move(sends), std::move(receives));
    reduce_tensors(TreeProgram::of_leaves(size_), call_.op, sources, {output}, size_);
  }

  void gather_to_all() {
    Messages sends, receives;
    for (size_t t = 0; t < call_.inputs.size(); ++t) {
      const auto input = call_.inputs[t].flatten(), output = call_.outputs[t].flatten();
      copy(rows(output, me_, input.numel()), input);
      for (int r = 0; r < size_; ++r) {
        if (r == me_) continue;
        sends.push_back({r, input});
        receives.push_back({r, rows(output, r, input.numel())});
      }
    }
    round(std::move(sends), std::move(receives));
  }

  void gather() {
    const auto input = call_.inputs[0].flatten();
    if (me_ != call_.peer) return round({{call_.peer, input}}, {});
    const auto output = call_.outputs[0].flatten();
    Messages receives;
    for (int r = 0; r < size_; ++r)
      if (r != me_) receives.push_back({r, rows(output, r, input.numel())});
    copy(rows(output, me_, input.numel()), input);
    round({}, std::move(receives));
  }

  void scatter() {
    const auto output = call_.outputs[0].flatten();
    if (me_ != call_.peer) return round({}, {{call_.peer, output}});
    const auto input = call_.inputs[0].flatten();
    Messages sends;
    for (int r = 0; r < size_; ++r)
      if (r != me_) sends.push_back({r, rows(input, r, output.numel())});
    copy(output, rows(input, me_, output.numel()));
    round(std::move(sends), {});
  }

  // Small tensors go straight to everybody. Of a large one, the root gives each rank a slice, then all exchange theirs.
  void broadcast() {
    int64_t bytes = 0;
    for (const auto& tensor : call_.inputs) bytes += static_cast<int64_t>(tensor.nbytes());
    Messages sends, receives;
    const bool large = size_ > 2 && bytes >= kLargeBroadcastBytes;
    const auto slice = [&](const at::Tensor& flat, int r) {
      if (!large) return flat;
      const int64_t begin = flat.numel() * r / size_;
      return flat.narrow(0, begin, flat.numel() * (r + 1) / size_ - begin);
    };
    for (const auto& tensor : call_.inputs) {
      const auto flat = tensor.flatten();
      if (me_ != call_.peer) receives.push_back({call_.peer, slice(flat, me_)});
      for (int r = 0; me_ == call_.peer && r < size_; ++r)
        if (r != me_) sends.push_back({r, slice(flat, r)});
    }
    round(std::move(sends), std::move(receives));
    if (!large) return;
    sends.clear();
    receives.clear();
    for (const auto& tensor : call_.inputs) {
      const auto flat = tensor.flatten();
      for (int r = 0; r < size_; ++r) {
        if (r == me_) continue;
        if (r != call_.peer) sends.push_back({r, slice(flat, me_)});
        if (me_ != call_.peer) receives.push_back({r, slice(flat, r)});
      }
    }
    round(std::move(sends), std::move(receives));
  }

  void all_to_all() {
    const auto input = call_.inputs[0].flatten(), output = call_.outputs[0].flatten();
    Messages sends, receives;
    int64_t at_input = 0, at_output = 0;
    at::Tensor mine, to_me;
    for (int r = 0; r < size_; ++r) {
      const auto out = input.narrow(0, at_input, call_.input_counts[r]);
      const auto in = output.narrow(0, at_output, call_.output_counts[r]);
      at_input += call_.input_counts[r];
      at_output += call_.output_counts[r];
      if (r != me_) {
        sends.push_back({r, out});
        receives.push_back({r, in});
      } else {
        mine = out;
        to_me = in;
      }
    }
    require(mine.numel() == to_me.numel(), "all_to_all", "rank ", me_, " sends itself ", mine.numel(),
            " elements and expects ", to_me.numel());
    copy(to_me, mine);
    round(std::move(sends), std::move(receives));
  }

  // Dissemination: after round k everybody has heard, directly or not, from the 2^(k+1) - 1 ranks before it.
  void barrier() {
    const auto options = at::TensorOptions(at::kByte).device(transport_.device());
    const auto token = at::zeros({1}, options), heard = at::zeros({1}, options);
    for (int distance = 1; distance < size_; distance *= 2)
      round({{(me_ + distance) % size_, token}}, {{(me_ + size_ - distance) % size_, heard}});
  }

  Transport& transport_;
  const Call& call_;
  const Clock::time_point deadline_;
  const int me_;
  const int size_;
};

}  // namespace

std::unique_ptr<Pending> begin_exchange(Transport& transport, std::vector<Message> sends, std::vector<Message> receives,
                                        uint32_t channel) {
  const auto empty = [](const Message& message) { return message.tensor.numel() == 0; };
  std::erase_if(sends, empty);
  std::erase_if(receives, empty);
  return sends.empty() && receives.empty() ? nullptr : transport.start(sends, receives, channel);
}

void exchange(Transport& transport, std::vector<Message> sends, std::vector<Message> receives,
              Clock::time_point deadline, uint32_t channel) {
  if (const auto round = begin_exchange(transport, std::move(sends), std::move(receives), channel))
    round->wait(deadline);
}

void run_collective(Transport& transport, const Call& call, Clock::time_point deadline) {
  Collective(transport, call, deadline).run();
}

std::optional<SignatureMismatch> compare_signatures(Transport& transport, const Call& call,
                                                    Clock::time_point deadline) {
  constexpr int64_t kBytes = 512;  // of the signature and the description, each cut off at half of it
  const auto all = at::zeros({transport.size(), kBytes}, at::kByte);
  const auto row = [&](int rank) { return static_cast<char*>(all[rank].mutable_data_ptr()); };
  const std::string words = signature(call), shown = describe(call);
  std::strncpy(row(transport.rank()), words.c_str(), kBytes / 2 - 1);
  std::strncpy(row(transport.rank()) + kBytes / 2, shown.c_str(), kBytes / 2 - 1);
  std::vector<Message> sends, receives;
  for (int r = 0; r < transport.size(); ++r) {
    if (r == transport.rank()) continue;
    sends.push_back({r, all[transport.rank()]});
    receives.push_back({r, all[r]});
  }
  exchange(transport, std::move(sends), std::move(receives), deadline, kSignatures);
  for (int r = 1; r < transport.size(); ++r)
    if (std::strcmp(row(r), row(0)) != 0)
      return SignatureMismatch{r, text("ranks called different operations: rank 0 called ", row(0) + kBytes / 2,
                                       ", rank ", r, " called ", row(r) + kBytes / 2)};
  return std::nullopt;
}

}  // namespace lockstep::comm
