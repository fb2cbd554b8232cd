// SPDX-License-Identifier: Apache-2.0
#include "cli/config_options.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iterator>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

std::string help_of(const run::Field& field) {
  std::string out = field.help;
  for (size_t c = 0; c < field.choices.size(); ++c) out += (c == 0 ? ": " : ", ") + field.choices[c];
  return out;
}

// What stands behind an option in --help: its value where none is given.
std::string default_of(const run::Field& field) {
  const std::string value = run::value_text(field);
  const bool none = value.empty() || value == "\"\"" || value == "[]" || value == "0" || value == "-1";
  return none ? " " : text("[", value, "]");
}

// NAME=VALUE,NAME=VALUE: a comma with no other setting behind it belongs to the value.
std::vector<std::string> cut_settings(const std::string& words) {
  std::vector<std::string> out;
  std::istringstream in(words);
  for (std::string word; std::getline(in, word, ',');)
    if (out.empty() || word.find('=') != std::string::npos)
      out.push_back(word);
    else
      out.back().append(",").append(word);
  return out;
}

CLI::Option* add_settings(CLI::App& command, std::vector<std::string>& settings, const std::string& help) {
  const auto take = [&settings](const std::vector<std::string>& given) {
    settings.clear();
    for (const std::string& words : given) std::ranges::move(cut_settings(words), std::back_inserter(settings));
  };
  return command.add_option_function<std::vector<std::string>>("--set", take, help)->allow_extra_args(false);
}

struct Adder {
  CLI::App& command;
  const run::Field& field;

  // Two flags; --help shows the one that changes something.
  CLI::Option* operator()(bool* value) const {
    auto* on = command.add_flag_callback(
        text("--", field.name), [value] { *value = true; }, help_of(field));
    auto* off = command.add_flag_callback(
        text("--no-", field.name), [value] { *value = false; }, text("Switch off: ", help_of(field)));
    (*value ? on : off)->group("");
    return *value ? off : on;
  }
  CLI::Option* operator()(std::vector<std::string>* value) const {
    if (std::string_view(field.name) == "set") return add_settings(command, *value, help_of(field));
    return list(value);
  }
  template <class T>
  CLI::Option* operator()(std::vector<T>* value) const {
    return list(value);
  }
  template <class T>
  CLI::Option* list(std::vector<T>* value) const {
    return command.add_option(text("--", field.name), *value, help_of(field))->delimiter(',')->allow_extra_args(false);
  }
  CLI::Option* operator()(uint64_t* value) const {
    return command.add_option(text("--", field.name), *value, help_of(field))->check([](const std::string& word) {
      return word.starts_with('-') ? text("is ", word, ", expected a whole number, 0 or more") : "";
    });
  }
  template <class T>
  CLI::Option* operator()(T* value) const {
    const bool positional = std::string_view(field.name) == "model";
    return command.add_option(positional ? "model" : text("--", field.name), *value, help_of(field));
  }
};

void assign_all(const run::Config& from, run::Config& to, const std::function<bool(const std::string&)>& chosen) {
  run::Config source = from;
  const auto values = run::fields_of(source), places = run::fields_of(to);
  for (size_t f = 0; f < places.size(); ++f)
    if (chosen(places[f].name))
      std::visit([&](auto* place) { *place = *std::get<std::remove_const_t<decltype(place)>>(values[f].value); },
                 places[f].value);
}

}  // namespace

run::Config ConfigOptions::resolve(std::vector<std::string>& given) const {
  run::Config out;
  given = file.empty() ? std::vector<std::string>{} : run::read_toml_file(out, file);
  run::Config any;
  for (const auto& field : run::fields_of(any))
    if (on_command_line(field.name)) given.emplace_back(field.name);
  assign_all(config, out, on_command_line);
  if (sync_bn || ghost_bn) {
    require(!(sync_bn && ghost_bn), "train", "--sync-bn and --ghost-bn exclude each other");
    out.batch_norm = sync_bn ? "sync" : "ghost";
    given.emplace_back("batch-norm");
  }
  if (!preset.empty()) run::apply_preset(out, preset, given);
  return out;
}

void add_config_options(CLI::App& command, ConfigOptions& options, const std::vector<std::string>& without) {
  for (const run::Field& field : run::fields_of(options.config)) {
    if (std::ranges::count(without, field.name) > 0) continue;
    CLI::Option* option = std::visit([&](auto* value) { return Adder{command, field}(value); }, field.value);
    option->group(field.group)->option_text(std::holds_alternative<bool*>(field.value) ? "" : default_of(field));
  }
  command.add_option("--config", options.file, "Options from a TOML file; the command line wins")->group("Presets");
  command.add_flag("--sync-bn", options.sync_bn, "As --batch-norm sync")->group("Arithmetic");
  command.add_flag("--ghost-bn", options.ghost_bn, "As --batch-norm ghost")->group("Arithmetic");
  command.add_option("--preset", options.preset, "Values for what is not given: best")->group("Presets");
  options.on_command_line = [&command](const std::string& name) {
    for (const auto& spelling : {name, "--" + name, "--no-" + name}) {
      const auto* option = command.get_option_no_throw(spelling);
      if (option != nullptr && option->count() > 0) return true;
    }
    return false;
  };
}

void add_network_options(CLI::App& command, std::string& model, std::vector<std::string>& set) {
  command.add_option("--model", model, "The network, where the file holds weights alone");
  add_settings(command, set, "Settings of the network, such as width=0.5");
}

}  // namespace lockstep::cli
