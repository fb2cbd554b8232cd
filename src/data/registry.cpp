// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/registry.h"

#include <algorithm>
#include <utility>

#include "data/clouds/clouds.h"
#include "lockstep/base/detail/suggestions.h"
#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

// "rooms[:SCENES]" and "rooms" may stand alone, "mnist:FOLDER" may not.
bool may_stand_alone(const DatasetKind& kind) {
  return kind.usage.size() == kind.name.size() || kind.usage[kind.name.size()] == '[';
}

std::vector<std::string> names_of(const std::vector<DatasetKind>& kinds) {
  std::vector<std::string> names;
  for (const DatasetKind& kind : kinds) names.push_back(kind.name);
  return names;
}

}  // namespace

void DatasetRegistry::add(DatasetKind kind) {
  const char* operation = "DatasetRegistry::add";
  require(!kind.name.empty() && kind.name.find_first_of(":/") == std::string::npos, operation, "the name is '",
          kind.name, "', expected a word without ':' and '/'");
  require(kind.usage.starts_with(kind.name), operation, "the usage of ", kind.name, " is '", kind.usage,
          "', expected one that begins with the name");
  require(kind.open != nullptr, operation, kind.name, " has nothing to be opened with, expected a function");
  require(find(kind.name) == nullptr, operation, "there is a data set '", kind.name,
          "' already, expected another name");
  kinds_.push_back(std::move(kind));
}

const DatasetKind* DatasetRegistry::find(std::string_view name) const {
  const auto found = std::ranges::find(kinds_, name, &DatasetKind::name);
  return found == kinds_.end() ? nullptr : &*found;
}

DatasetPointer DatasetRegistry::open(std::string_view spec, Subset subset, const DatasetOptions& options) const {
  const size_t colon = spec.find(':');
  const std::string_view name = spec.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? "" : spec.substr(colon + 1);
  const DatasetKind* kind = find(name);
  if (kind != nullptr && colon == std::string_view::npos && may_stand_alone(*kind))
    return kind->open("", subset, options);
  std::error_code ignored;
  if (const fs::path path(spec); fs::exists(path, ignored)) {
    std::vector<std::string> contents;
    for (const DatasetKind& one : kinds_) {
      if (one.recognises && one.recognises(path)) return one.open(spec, subset, options);
      if (!one.contents.empty()) contents.push_back(one.contents);
    }
    fail("open_dataset", path.string(), " holds no data set, expected ", one_of(contents));
  }
  if (kind != nullptr && !rest.empty()) return kind->open(rest, subset, options);
  const bool is_path = spec.find('/') != std::string_view::npos || spec.ends_with(".pt");
  std::vector<std::string> recognised;
  for (const DatasetKind& one : kinds_)
    if (one.recognises) recognised.push_back(one.name);
  fail("open_dataset", "got '", spec, is_path ? "', which is not there" : "'", ", expected ", usages(),
       recognised.empty() ? "" : ", or a file or folder of " + one_of(recognised),
       kind == nullptr ? did_you_mean(std::string(name), names_of(kinds_)) : "", note_on_kinds());
}

bool DatasetRegistry::names_clouds(std::string_view spec) const {
  const DatasetKind* kind = find(spec.substr(0, spec.find(':')));
  return kind != nullptr && kind->clouds;
}

std::string DatasetRegistry::usages() const {
  std::string usages;
  for (const DatasetKind& kind : kinds_) usages += (usages.empty() ? "" : ", ") + kind.usage;
  return usages;
}

std::shared_ptr<const Dataset> open_dataset(std::string_view spec, Subset subset, const DatasetOptions& options) {
  return builtin().open(spec, subset, options);
}

bool names_clouds(std::string_view spec) {
  return builtin().names_clouds(spec);
}

}  // namespace lockstep::data
