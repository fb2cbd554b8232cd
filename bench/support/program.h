// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::bench {

/// What a benchmark may be told beside --json FILE and --help, as its help says it: {"--voxels", "N", "one size"}.
struct Option {
  std::string name;
  std::string value;  // empty: takes none
  std::string meaning;
};

/// The options that were given.
class Arguments {
 public:
  explicit Arguments(std::map<std::string, std::string> given) : given_(std::move(given)) {}
  bool has(const std::string& name) const { return given_.contains(name); }
  std::string text(const std::string& name, const std::string& otherwise) const;
  /// Throws std::invalid_argument where it is not a whole number from 1.
  int64_t number(const std::string& name, int64_t otherwise) const;

 private:
  std::map<std::string, std::string> given_;
};

/// A benchmark's program.
struct Program {
  std::string measures;  // a sentence of the help
  nlohmann::json (*measure)(const Arguments&);
  std::vector<Option> options = {};
  /// A contender in a process of its own, which is this program called with `--serve WORDS...`.
  void (*serve)(const std::vector<std::string>& words) = nullptr;
};

/// What a benchmark's main() does. Results go to --json FILE. An exception is a message and exit code 1, a command line
/// that it can't read 2.
int run_program(int argc, char** argv, const Program& program);

/// How a shell calls this program's serve(); its words follow.
std::string serve_command();

/// The file of this program.
std::string own_path();

/// A TCP port on this host that nobody listened on just now.
int free_port();

/// Where Debian's dataset-fashion-mnist lies.
inline constexpr const char* fashion_mnist_folder = "/usr/share/datasets/fashion-mnist";

/// Whether Fashion-MNIST is in `folder`; says that nothing was measured where it is not.
bool has_fashion_mnist(const std::string& folder);

}  // namespace lockstep::bench
