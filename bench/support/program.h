// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep::bench {

/// What a benchmark's main() does: `run`, where an exception is a message and exit code 1.
int run_program(int argc, char** argv, int (*run)(int, char**));

/// The file of this program, for contenders that are processes of it.
std::string own_path();

/// A TCP port on this host that nobody listened on just now.
int free_port();

/// Where Debian's dataset-fashion-mnist lies.
inline constexpr const char* fashion_mnist_folder = "/usr/share/datasets/fashion-mnist";

/// Whether Fashion-MNIST is in `folder`; says that nothing was measured where it is not.
bool has_fashion_mnist(const std::string& folder);

}  // namespace lockstep::bench
