// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace lockstep::cli {

/// What the command line asked for, ready to run. Returns the exit code.
using Command = std::function<int()>;

}  // namespace lockstep::cli
