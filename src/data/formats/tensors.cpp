// SPDX-License-Identifier: Apache-2.0
#include "data/formats/file.h"
#include "lockstep/archive/tensor_file.h"
#include "lockstep/data/registry.h"

namespace lockstep::data {
namespace {

at::Tensor tensor_at(const fs::path& file, const archive::Value& dict, const char* key) {
  const archive::Value* value = dict.find(key);
  const auto* tensor = value == nullptr ? nullptr : std::get_if<at::Tensor>(&value->held);
  require(tensor != nullptr, "open_dataset", file.string(),
          value == nullptr ? text(" has no '", key, "'") : text(" has ", value->kind(), " under '", key, "'"),
          ", expected torch.save({'inputs': tensor, 'targets': tensor}, FILE)");
  return *tensor;
}

std::vector<std::string> class_names_in(const archive::Value& dict) {
  std::vector<std::string> names;
  const archive::Value* value = dict.find("class_names");
  if (const auto* list = value == nullptr ? nullptr : std::get_if<archive::Value::List>(&value->held))
    for (const archive::Value& name : *list)
      if (const auto* word = std::get_if<std::string>(&name.held)) names.push_back(*word);
  return names;
}

DatasetPointer open_tensors(const fs::path& file, Subset subset, const DatasetOptions& /*options*/) {
  const archive::Value whole = archive::read_tensor_file(file.string());
  require(std::holds_alternative<archive::Value::Dict>(whole.held), "open_dataset", file.string(), " holds ",
          whole.kind(), ", expected a dict with 'inputs' and 'targets'");
  const archive::Value* own = whole.find(to_string(subset));
  const bool has_splits = whole.find("train") != nullptr || whole.find("test") != nullptr;
  require(!has_splits || own != nullptr, "open_dataset", file.string(), " has no '", to_string(subset), "'");
  const archive::Value& dict = has_splits ? *own : whole;
  const at::Tensor inputs = tensor_at(file, dict, "inputs"), targets = tensor_at(file, dict, "targets");
  try {
    return make_dataset(file.stem().string(), inputs, targets, 0, class_names_in(dict));
  } catch (const Error& error) {
    fail("open_dataset", file.string(), ": ", error.what());
  }
}

}  // namespace

DatasetKind tensors_kind() {
  return {.name = "tensors",
          .usage = "tensors:FILE.pt",
          .description =
              "what torch.save wrote of {'inputs': tensor, 'targets': tensor}, or of such a dict for each of "
              "'train' and 'test'",
          .open = open_tensors,
          .recognises = [](const fs::path& path) { return !fs::is_directory(path); }};
}

}  // namespace lockstep::data
