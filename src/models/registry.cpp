// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/registry.h"

#include <c10/util/ArrayRef.h>

#include <algorithm>

#include "lockstep/base/detail/suggestions.h"
#include "lockstep/base/error.h"
#include "lockstep/models/init.h"
#include "models/clouds/clouds.h"

namespace lockstep::models {
namespace {

template <class Named>
std::vector<std::string> names_of(const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const auto& one : all) names.push_back(one.name);
  return names;
}

}  // namespace

void Registry::add(Entry entry) {
  require(!entry.name.empty(), "Registry::add", "the name is empty, expected one");
  require(entry.make != nullptr, "Registry::add", entry.name, " has nothing to be made with, expected a function");
  require(std::ranges::find(entries_, entry.name, &Entry::name) == entries_.end(), "Registry::add",
          "there is a network '", entry.name, "' already, expected another name");
  entries_.push_back(std::move(entry));
}

const Entry& Registry::find(const std::string& name) const& {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  if (found != entries_.end()) return *found;
  const auto names = names_of(entries_);
  fail("models", "there is no model '", name, "', expected ", one_of(names), did_you_mean(name, names),
       note_on_networks());
}

Options Registry::complete(const std::string& name, const Options& options) const {
  const Entry& entry = find(name);
  require(!options.input.empty() && std::ranges::all_of(options.input, [](int64_t size) { return size > 0; }),
          name.c_str(), "an example has the sizes ", c10::IntArrayRef(options.input),
          ", expected some, all of them above 0");
  require(entry.labels == Labels::examples || (options.dimension > 0 && options.input.size() == 1), name.c_str(),
          "an example has the sizes ", c10::IntArrayRef(options.input), " and ", options.dimension,
          " axes of coordinates, expected clouds of points with [channels]: --data rooms");
  require(options.classes > 0, name.c_str(), "there are ", options.classes, " classes, expected at least 1");
  check_initialisation(options.init);
  const auto known = names_of(entry.settings);
  for (const auto& [setting, value] : options.settings)
    require(std::ranges::find(known, setting) != known.end(), name.c_str(), "there is no setting '", setting,
            "', expected ", known.empty() ? "none" : one_of(known), did_you_mean(setting, known));
  Options full = options;
  for (const Setting& setting : entry.settings) full.settings.emplace(setting.name, setting.value);
  return full;
}

std::shared_ptr<Classifier> Registry::make(const std::string& name, const Options& options) const {
  const Options full = complete(name, options);
  auto network = find(name).make(full);
  require(network != nullptr, name.c_str(), "nothing was made, expected a network");
  initialise(*network, full.init);
  return network;
}

std::shared_ptr<Classifier> make(const std::string& name, const Options& options) {
  return builtin().make(name, options);
}

}  // namespace lockstep::models
