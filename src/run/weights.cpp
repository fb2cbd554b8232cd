// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/weights.h"

#include <algorithm>

#include "lockstep/archive/detail/disk_copy.h"
#include "lockstep/archive/detail/tensor_archive.h"
#include "lockstep/base/detail/sha256.h"
#include "lockstep/base/error.h"

namespace lockstep::run {
namespace {

bool is_state_dict(const archive::Value& value) {
  const auto* dict = std::get_if<archive::Value::Dict>(&value.held);
  return dict != nullptr && !dict->empty() && std::ranges::all_of(*dict, [](const auto& item) {
           return std::holds_alternative<at::Tensor>(item.second.held);
         });
}

Tensors tensors_of(const archive::Value& state_dict) {
  Tensors out;
  for (const auto& [name, item] : std::get<archive::Value::Dict>(state_dict.held))
    out[name] = std::get<at::Tensor>(item.held);
  return out;
}

}  // namespace

Tensors weights_in(const archive::Value& value, const std::string& name) {
  if (is_checkpoint(value)) return tensors_of(value.at("weights"));
  if (is_state_dict(value)) return tensors_of(value);
  for (const char* key : {"state_dict", "model_state_dict", "model"})
    if (const archive::Value* inner = value.find(key); inner != nullptr && is_state_dict(*inner))
      return tensors_of(*inner);
  fail("read_weights", "'", name, "' holds ", value.kind(),
       ", expected a checkpoint of lockstep train or a dict of tensors (torch.save(model.state_dict(), file))");
}

FoundWeights find_weights(const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file)) {
    if (auto found = find_checkpoint(file)) return {std::move(found->checkpoint.weights), std::move(found->checksums)};
    const auto weights = file / "weights.pt";
    require(std::filesystem::exists(weights), "read_weights", "folder '", file.string(),
            "' has neither last.pt nor weights.pt, expected a run's folder or a file");
    return find_weights(weights);
  }
  archive::MappedFile mapped = archive::map_tensor_file(file.string());
  return {weights_in(mapped.value, file.string()), std::move(mapped.checksums)};
}

Tensors read_weights(const std::filesystem::path& file) {
  return find_weights(file).weights;
}

void write_weights(const std::filesystem::path& file, const Tensors& weights) {
  archive::Value::Dict dict;
  for (const auto& [name, tensor] : weights) dict.push_back({name, {tensor}});
  archive::write_tensor_file(file.string(), {std::move(dict)});
}

std::string hash_of(const Tensors& weights) {
  Sha256 sha;
  for (const auto& [name, tensor] : weights) {
    const std::string head = text(name, '\0', tensor.scalar_type(), tensor.sizes(), '\0');
    sha.update(head.data(), head.size());
    const auto bytes = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
    sha.update(bytes.const_data_ptr(), bytes.nbytes());
    archive::let_go(bytes);
  }
  return sha.hex();
}

}  // namespace lockstep::run
