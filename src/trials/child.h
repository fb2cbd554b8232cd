// SPDX-License-Identifier: Apache-2.0
// Processes of this very program that are started to measure something.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/run/detail/json.h"

namespace lockstep::trials {

/// A folder for the files that a trial and its processes pass each other. It goes with its owner.
class Folder {
 public:
  Folder() {
    std::string path = (std::filesystem::temp_directory_path() / "lockstep_trial_XXXXXX").string();
    require(mkdtemp(path.data()) != nullptr, "trial", "no folder can be made in ",
            std::filesystem::temp_directory_path().string());
    path_ = path;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// What processes are asked for, and what rank 0 of them answers.
struct ChildRequest {
  run::Json request;
  int processes = 1;
  bool traced = false;                     ///< with a timeline of every device
  std::vector<std::string> launcher = {};  ///< as Trial has it
};

/// Starts them and waits for their end. `on_end` sees the folder of their files before it goes. Throws TrialFailed, and
/// Error where this process was started for a trial itself.
run::Json run_child(const ChildRequest& child, const std::function<void(const std::filesystem::path&)>& on_end = {});

/// The folder of the request that this process was started for; empty: it was started by somebody else.
std::filesystem::path folder_of_request();
run::Json read_request(const std::filesystem::path& folder);
void write_answer(const std::filesystem::path& folder, const run::Json& answer);

}  // namespace lockstep::trials
