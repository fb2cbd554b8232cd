// SPDX-License-Identifier: Apache-2.0
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/models/registry.h"
#include "lockstep/run/config.h"

namespace lockstep::cli {
namespace {

struct Word {
  std::string name;  // "--lr"
  std::string help;
  bool takes_value = false;
  std::vector<std::string> choices = {};  // of the value
};

struct CommandWords {
  std::string name;
  std::string help;
  std::vector<Word> options;
  std::vector<std::string> arguments = {};  // what the first word that is no option may be, where that is known
};

std::vector<std::string> choices_of(const std::string& option) {
  run::Config config;
  for (const run::Field& field : run::fields_of(config))
    if (field.name == option) return field.choices;
  return {};
}

CommandWords words_of(const CLI::App& command) {
  CommandWords out{command.get_name(), command.get_description(), {}};
  for (const CLI::Option* option : command.get_options()) {
    if (option->nonpositional()) {
      for (const auto& name : option->get_lnames())
        out.options.push_back(
            {"--" + name, option->get_description(), option->get_items_expected_max() > 0, choices_of(name)});
    } else if (option->get_name() == "model") {
      const auto registry = models::builtin();
      for (const auto& entry : registry.entries()) out.arguments.push_back(entry.name);
    }
  }
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// What completes nothing here is left to the shell, which completes files (-o default).
void print_bash(const std::vector<CommandWords>& commands) {
  std::string names = "--help --version";
  for (const auto& command : commands) names += " " + command.name;
  std::printf("_lockstep() {\n  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=''\n");
  std::printf("  COMPREPLY=()\n  if ((COMP_CWORD == 1)); then\n    COMPREPLY=($(compgen -W '%s' -- \"$word\"))\n",
              names.c_str());
  std::printf("    return\n  fi\n  case \"${COMP_WORDS[1]} $before\" in\n");
  for (const auto& command : commands)
    for (const Word& option : command.options) {
      if (!option.takes_value) continue;
      std::printf("    '%s %s') COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n", command.name.c_str(),
                  option.name.c_str(), joined(option.choices).c_str());
    }
  std::printf("  esac\n  case ${COMP_WORDS[1]} in\n");
  for (const auto& command : commands) {
    std::string words;
    for (const Word& option : command.options) words += " " + option.name;
    std::printf("    %s)\n      words='%s'\n", command.name.c_str(),
                words.substr(std::min<size_t>(1, words.size())).c_str());
    if (!command.arguments.empty())
      std::printf("      ((COMP_CWORD != 2)) || words+=' %s'\n", joined(command.arguments).c_str());
    std::printf("      ;;\n");
  }
  std::printf(
      "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -o default -F _lockstep lockstep\n");
}

// Inside of a specification of _arguments, in single quotes.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

void print_zsh(const std::vector<CommandWords>& commands) {
  std::printf("#compdef lockstep\n\n_lockstep() {\n  local -a commands=(\n");
  for (const auto& command : commands)
    std::printf("    '%s:%s'\n", command.name.c_str(), zsh_text(command.help).c_str());
  std::printf("  )\n  if ((CURRENT == 2)); then\n    _describe command commands\n    return\n  fi\n");
  std::printf("  local command=$words[2]\n  shift words\n  ((CURRENT--))\n  case $command in\n");
  for (const auto& command : commands) {
    std::printf("    %s)\n      _arguments", command.name.c_str());
    for (const Word& option : command.options) {
      const std::string values = option.choices.empty() ? "_files" : "(" + joined(option.choices) + ")";
      const std::string value = option.takes_value ? ":" + option.name.substr(2) + ":" + values : "";
      std::printf(" \\\n        '%s[%s]%s'", option.name.c_str(), zsh_text(option.help).c_str(), value.c_str());
    }
    if (!command.arguments.empty()) std::printf(" \\\n        '1:model:(%s)'", joined(command.arguments).c_str());
    std::printf(" \\\n        '*:file:_files'\n      ;;\n");
  }
  std::printf("  esac\n}\n\n");
  std::printf("if [[ $funcstack[1] == _lockstep ]]; then _lockstep \"$@\"; else compdef _lockstep lockstep; fi\n");
}

int print_completion(const CLI::App& app, const std::string& shell) {
  std::vector<CommandWords> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(words_of(*command));
  if (shell == "bash")
    print_bash(commands);
  else if (shell == "zsh")
    print_zsh(commands);
  else
    fail("completion", "the shell is '", shell, "', expected bash or zsh");
  return 0;
}

}  // namespace

void setup_completion(CLI::App& app, Command& chosen) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completion", "Prints what completes this program's words: source <(lockstep completion bash)");
  command->add_option("shell", *shell, "bash or zsh")->required();
  command->callback([shell, &app, &chosen] { chosen = [shell, &app] { return print_completion(app, *shell); }; });
}

}  // namespace lockstep::cli
