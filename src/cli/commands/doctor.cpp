// SPDX-License-Identifier: Apache-2.0
// The doctor is part of the Python package: this hands over to it.
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "cli/commands/commands.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

constexpr const char* kStart =
    "import importlib.util, runpy, sys\n"
    "if importlib.util.find_spec('lockstep') is None:\n"
    "    print('lockstep: doctor: this Python has no package lockstep; LOCKSTEP_PYTHON names another', "
    "file=sys.stderr)\n"
    "    sys.exit(2)\n"
    "runpy.run_module('lockstep.doctor', run_name='__main__', alter_sys=True)\n";

struct DoctorCommand {
  std::string steps, json, html, runs, ranks, keep;
  std::vector<std::string> program;
};

int doctor(const DoctorCommand& command) {
  require(!command.program.empty(), "doctor", "no program, expected -- and the command that starts it");
  const char* named = std::getenv("LOCKSTEP_PYTHON");
  std::vector<std::string> words{named != nullptr && *named != '\0' ? named : "python3", "-c", kStart};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--steps", command.steps);
  add("--json", command.json);
  add("--html", command.html);
  add("--runs", command.runs);
  add("--ranks", command.ranks);
  add("--keep", command.keep);
  words.emplace_back("--");
  words.insert(words.end(), command.program.begin(), command.program.end());
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  throw Error(
      text("doctor: ", words[0], ": ", std::strerror(errno), ", expected a Python (LOCKSTEP_PYTHON names one)"));
}

}  // namespace

void setup_doctor(CLI::App& app, Command& chosen, const std::vector<std::string>& program) {
  const auto options = std::make_shared<DoctorCommand>();
  CLI::App* command =
      app.add_subcommand("doctor", "Say what is wrong with a training: lockstep doctor [OPTIONS] -- PROGRAM [ARGS...]");
  command->footer(
      "Needs the Python package. Exit code 0: nothing found; 1: findings; 2: the program could not be run.");
  command->add_option("--steps", options->steps, "End a program of PyTorch after so many steps; 0: at its own end");
  command->add_option("--json", options->json, "Write the findings to this file; -: to standard output");
  command->add_option("--html", options->html, "Write a page with timeline, curves and findings");
  command->add_option("--runs", options->runs, "Run a program of PyTorch so often, and compare every operation");
  command->add_option("--ranks", options->ranks, "Compare numbers of ranks, such as 1,2");
  command->add_option("--keep", options->keep, "Keep the logs in this folder");
  command->callback([options, &chosen, &program] {
    options->program = program;
    chosen = [options] { return doctor(*options); };
  });
}

}  // namespace lockstep::cli
