// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"
#include "train/session/plan.h"

namespace lockstep::train {
namespace {

// Part of the recipe, and yet what one may want more of.
bool may_grow(const std::string& name) {
  return name == "epochs" || name == "steps";
}

// Options of this start alone: where it runs and which run it is.
bool is_of_one_start(const std::string& name) {
  return name == "devices" || name == "blocks" || name == "split" || name == "out" || name == "resume";
}

// As data::Transforms say it, "flip" is "flip:0.5", and a checkpoint has the figures that "normalize" came to.
bool is_same_augment(const std::string& mine, const std::string& theirs) {
  const auto there = data::Transforms::parse(theirs);
  auto here = data::Transforms::parse(mine);
  for (const auto& transform : there.list())
    if (const auto* normalize = std::get_if<data::Normalize>(&transform)) here = here.with(normalize->figures);
  return here == there;
}

// Whether an option of the recipe that somebody has set says what the checkpoint says. A batch and a rate that were to
// grow with the devices have grown there, with those that the run began on.
bool says_the_same(const run::Field& mine, const run::Field& theirs, const run::Config& config) {
  const std::string name = mine.name;
  if (config.scale_batch && (name == "batch" || name == "scale-batch")) return true;
  const bool scales_lr = config.scale_lr == "linear" || config.scale_lr == "sqrt";  // another word is a mistake
  if (scales_lr && (name == "lr" || name == "scale-lr")) return true;
  if (name == "augment")
    return is_same_augment(*std::get<std::string*>(mine.value), *std::get<std::string*>(theirs.value));
  return run::value_text(mine) == run::value_text(theirs);
}

std::optional<run::FoundCheckpoint> read_here(const std::string& path) {
  if (std::filesystem::is_directory(path)) return run::find_checkpoint(path);
  return run::read_checkpoint(path);
}

}  // namespace

// The processes of other hosts may not see the file, or have another one there: they are sent it.
std::optional<run::Checkpoint> fetch_checkpoint(const std::string& path, const comm::Group& group) {
  std::optional<run::FoundCheckpoint> mine;
  const std::string said = from_leader(group, [&] {
    mine = read_here(path);
    return mine ? text(mine->file.string(), '\n', mine->checksums) : std::string();
  });
  if (said.empty()) return std::nullopt;
  const size_t line = said.find('\n');
  const std::string file = said.substr(0, line), checksums = said.substr(line + 1);
  if (group.rank() != 0) mine = read_same(checksums, [&] { return run::read_checkpoint(file); });
  if (sum_over(group, mine ? 0 : 1) == 0) return std::move(mine->checkpoint);
  const std::string bytes = from_leader(group, [&] { return bytes_of(mine->checkpoint); });
  return mine ? std::move(mine->checkpoint) : run::load_checkpoint(std::as_bytes(std::span(bytes)), file);
}

run::Config resumed_config(const run::Config& config, const std::vector<std::string>& given,
                           const run::Checkpoint& checkpoint) {
  run::Config mine = config, out = config_of(checkpoint);
  settle_rule(mine);
  const auto from = run::fields_of(mine), to = run::fields_of(out);
  std::string differences;
  for (size_t f = 0; f < to.size(); ++f) {
    const bool said = std::ranges::count(given, to[f].name) > 0;
    if (to[f].recipe && said && !may_grow(to[f].name)) {
      if (!says_the_same(from[f], to[f], mine))
        differences +=
            text("\n  ", to[f].name, " is ", run::value_text(from[f]), " here and ", run::value_text(to[f]), " there");
      continue;
    }
    if (!said && !is_of_one_start(to[f].name)) continue;
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
