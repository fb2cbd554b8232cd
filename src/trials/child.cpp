// SPDX-License-Identifier: Apache-2.0
#include "trials/child.h"

#include <cstdlib>
#include <vector>

#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/launcher.h"
#include "lockstep/trials/trial.h"

namespace lockstep::trials {
namespace {

using run::Json;

// Names the folder of the trial that a process is started for.
constexpr const char* kFolderVariable = "LOCKSTEP_TRIAL";
constexpr const char* kTrialFile = "trial.json";
constexpr const char* kResultFile = "result.json";
constexpr const char* kTraceFile = "trace.json";

}  // namespace

Json run_child(const ChildRequest& child, const std::function<void(const std::filesystem::path&)>& on_end) {
  require(std::getenv(kFolderVariable) == nullptr, "run_trial",
          "this process was started for a trial itself, expected trials::serve() at the start of main()");
  const Folder folder;
  write_file(folder.path() / kTrialFile, run::dump_json(child.request));
  std::map<std::string, std::string> environment{{kFolderVariable, folder.path().string()}};
  if (child.traced) environment["LOCKSTEP_TRACE"] = (folder.path() / kTraceFile).string();
  const bool is_mine = child.launcher.empty();
  const int code = launch::run({.program = is_mine ? std::vector<std::string>{"/proc/self/exe"} : child.launcher,
                                .processes = is_mine ? child.processes : 1,
                                .no_prefix = true,
                                .environment = std::move(environment),
                                .ends_on_signal = true});
  if (code != 0) throw TrialFailed(code, text("a training ended with exit code ", code, ", its own message is above"));
  const auto result = folder.path() / kResultFile;
  require(std::filesystem::exists(result), "run_trial",
          "the training's process left no result, expected trials::serve() at the start of main()");
  Json answer = run::parse_json("run_trial", read_file(result), result.string());
  if (on_end) on_end(folder.path());
  return answer;
}

std::filesystem::path folder_of_request() {
  const char* folder = std::getenv(kFolderVariable);
  return folder == nullptr ? std::filesystem::path() : std::filesystem::path(folder);
}

Json read_request(const std::filesystem::path& folder) {
  const auto file = folder / kTrialFile;
  return run::parse_json("serve", read_file(file), file.string());
}

void write_answer(const std::filesystem::path& folder, const Json& answer) {
  write_file(folder / kResultFile, run::dump_json(answer, -1));
}

}  // namespace lockstep::trials
