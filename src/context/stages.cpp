// SPDX-License-Identifier: Apache-2.0
#include "lockstep/context/stages.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/context/detail/borders.h"
#include "lockstep/context/detail/context.h"

namespace lockstep {
namespace {

/// The thread's borders. While the scope lives it has none: a stage may hold a network with stages of its own.
class BordersTaken {
 public:
  BordersTaken() : borders_(std::exchange(Context::current().borders, nullptr)) {}
  ~BordersTaken() { Context::current().borders = borders_; }
  BordersTaken(const BordersTaken&) = delete;
  BordersTaken& operator=(const BordersTaken&) = delete;

  Borders* operator->() const { return borders_; }

 private:
  Borders* borders_;
};

std::map<std::string_view, CarriedType>& carried_types() {
  static std::map<std::string_view, CarriedType> all;  // grows before main() begins
  return all;
}

}  // namespace

CarriedType register_carried_type(const CarriedType& type) {
  return carried_types().emplace(type.name, type).first->second;
}

const CarriedType& find_carried_type(std::string_view name) {
  const auto found = carried_types().find(name);
  require(found != carried_types().end(), "forward", "another process hands on a value of type ", name,
          ", which no stage of this program puts into a bundle, expected the same program in all processes");
  return found->second;
}

std::vector<std::string> Bundle::names() const {
  std::vector<std::string> all;
  for (const Entry& entry : entries_) all.push_back(entry.name);
  return all;
}

std::vector<at::Tensor> Bundle::tensors() const {
  std::vector<at::Tensor> all;
  for (const Entry& entry : entries_) all.push_back(entry.type->tensor(entry.value));
  return all;
}

void Bundle::replace_tensors(const std::vector<at::Tensor>& tensors) {
  require(tensors.size() == entries_.size(), "Bundle", "got ", tensors.size(), " tensors, expected ", entries_.size());
  for (size_t e = 0; e < entries_.size(); ++e)
    if (Entry& entry = entries_[e]; !tensors[e].is_same(entry.type->tensor(entry.value)))
      entry.type->replace(entry.value, tensors[e]);
}

Bundle::Entry& Bundle::place(const std::string& name) {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found != entries_.end() ? *found : entries_.emplace_back();
}

const Bundle::Entry& Bundle::find(const std::string& name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  if (found != entries_.end()) return *found;
  std::string names;
  for (const Entry& entry : entries_) names += (names.empty() ? "" : ", ") + entry.name;
  fail("Bundle", "there is no '", name, "', expected one of ", names.empty() ? "none" : names);
}

void Bundle::drop(const std::string& name) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.name == name; });
}

void Bundle::refuse_type(const std::string& name) {
  fail("Bundle", "'", name, "' is of another type than the stage asks for, expected the type that was put there");
}

void run_stages(const std::vector<Stage>& stages, Bundle& bundle) {
  if (Context::current().borders == nullptr) {
    for (const Stage& stage : stages) stage.run(bundle);
    return;
  }
  const BordersTaken borders;
  for (size_t next = 0; next < stages.size(); ++next) {
    if (borders->come_to(next, stages.size(), bundle)) stages[next].run(bundle);
  }
  borders->come_to(stages.size(), stages.size(), bundle);
}

void refuse_without_stages(const char* operation, const std::string& network) {
  fail(operation, network, R"( has no stages, expected some, between which it can be divided. Derive it from
lockstep::Staged (lockstep/context/stages.h) too, and let forward() go through them:

    std::vector<lockstep::Stage> stages() override {
      return {{"body", [this](const at::Tensor& x) { return body->forward(x); }},
              {"head", [this](const at::Tensor& x) { return head->forward(x); }}};
    }
    at::Tensor forward(const at::Tensor& x) {
      return lockstep::fold<at::Tensor>(stages(), x);
    }

Or leave it whole: --split data)");
}

}  // namespace lockstep
