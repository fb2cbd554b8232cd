// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/core/error.h"
#include "train/plan.h"
#include "train/tensor_archive.h"

namespace lockstep::train {
namespace {

// Part of the recipe, and yet what one may want more of.
bool may_grow(const std::string& name) {
  return name == "epochs" || name == "steps";
}

std::optional<CheckpointFile> read_here(const std::string& path) {
  if (std::filesystem::is_directory(path)) return find_checkpoint(path);
  CheckpointFile found{path, read_bytes(path)};
  load_checkpoint(std::as_bytes(std::span(found.bytes)), path);
  return found;
}

}  // namespace

// The processes of other hosts may not see the file.
std::optional<Checkpoint> fetch_checkpoint(const std::string& path, const comm::Group& group) {
  const std::string all = from_leader(group, [&] {
    const auto found = read_here(path);
    return found ? text(found->file.string(), '\n', found->bytes) : std::string();
  });
  if (all.empty()) return std::nullopt;
  const size_t end = all.find('\n');
  return load_checkpoint(std::as_bytes(std::span(all).subspan(end + 1)), all.substr(0, end));
}

Config resumed_config(const Config& config, const std::vector<std::string>& given, const Checkpoint& checkpoint) {
  Config mine = config, out;
  read_toml(out, checkpoint.config, "the checkpoint's configuration");
  settle_rule(out);
  const auto from = fields_of(mine), to = fields_of(out);
  std::string differences;
  for (size_t f = 0; f < to.size(); ++f) {
    const bool said = std::ranges::count(given, to[f].name) > 0;
    if (to[f].recipe && !(said && may_grow(to[f].name))) {
      if (said && value_text(from[f]) != value_text(to[f]))
        differences += text("\n  ", to[f].name, " is ", value_text(from[f]), " here and ", value_text(to[f]), " there");
      continue;
    }
    std::visit([&](auto* value) { *value = *std::get<std::remove_const_t<decltype(value)>>(from[f].value); },
               to[f].value);
  }
  require(differences.empty(), "resume",
          "the checkpoint is of another recipe, expected the same (--init begins a new "
          "run with its weights):",
          differences);
  return out;
}

}  // namespace lockstep::train
