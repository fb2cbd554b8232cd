// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/import_read.h>

#include <fstream>
#include <optional>
#include <utility>

#include "data/formats/file.h"
#include "lockstep/data/registry.h"

namespace lockstep::data {
namespace {

std::string first_line(const char* message) {
  const std::string_view whole(message);
  return std::string(whole.substr(0, whole.find('\n')));
}

/// The zip signature, or an error that tells what the file is instead.
void check_signature(const fs::path& file) {
  InputFile input(file);
  std::vector<uint8_t> bytes(4);
  const int64_t got = input.read_some(bytes);
  if (got < 4 || bytes[0] != 'P' || bytes[1] != 'K')
    input.fail_at(0, got < 4 ? "the file has fewer than 4 bytes" : "no zip signature",
                  ", expected what torch.save writes (not with _use_new_zipfile_serialization=False)");
}

c10::IValue load(const fs::path& file) {
  check_signature(file);
  try {
    caffe2::serialize::PyTorchStreamReader reader(file.string());
    return torch::jit::readArchiveAndTensors("data", "", "", std::nullopt, std::nullopt, c10::Device(c10::kCPU),
                                             reader);
  } catch (const c10::Error& error) {
    std::error_code ignored;
    fail("open_dataset", file.string(), " (", fs::file_size(file, ignored),
         " bytes) is truncated, corrupt, or holds more than tensors, numbers, strings, lists and dicts: ",
         first_line(error.what_without_backtrace()), "; save it again with torch.save");
  }
}

std::optional<c10::IValue> entry(const c10::IValue& dict, const char* key) {
  if (!dict.isGenericDict()) return std::nullopt;
  for (const auto& item : dict.toGenericDict())
    if (item.key().isString() && item.key().toStringRef() == key) return item.value();
  return std::nullopt;
}

at::Tensor tensor_at(const fs::path& file, const c10::IValue& dict, const char* key) {
  const auto value = entry(dict, key);
  require(value.has_value() && value->isTensor(), "open_dataset", file.string(), value ? " has under '" : " has no '",
          key, value ? "' something that is no tensor" : "'",
          ", expected torch.save({'inputs': tensor, 'targets': tensor}, FILE)");
  return value->toTensor();
}

std::vector<std::string> class_names_in(const c10::IValue& dict) {
  std::vector<std::string> names;
  const auto value = entry(dict, "class_names");
  if (value && value->isList())
    for (const c10::IValue& name : value->toListRef())
      if (name.isString()) names.push_back(name.toStringRef());
  return names;
}

DatasetPointer open_tensors(const fs::path& file, Split split, const DatasetOptions& /*options*/) {
  c10::IValue dict = load(file);
  require(dict.isGenericDict(), "open_dataset", file.string(), " holds a ", dict.tagKind(),
          ", expected a dict with 'inputs' and 'targets'");
  const bool has_splits = entry(dict, "train") || entry(dict, "test");
  if (has_splits) {
    const auto own = entry(dict, to_string(split));
    require(own.has_value(), "open_dataset", file.string(), " has no '", to_string(split), "'");
    dict = *own;
  }
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
