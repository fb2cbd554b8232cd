// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::bench {

/// A command line that can't be read: exit code 2. What fails in a measurement is 1.
struct UsageError : std::runtime_error {
  using runtime_error::runtime_error;
};

/// What a benchmark may be told beside --json FILE and --help, as its help says it: {"--voxels", "N", "one size"}.
struct Option {
  const char* name;
  const char* value;  // empty: takes none
  const char* meaning;
};

/// The options that were given.
class Arguments {
 public:
  explicit Arguments(std::map<std::string, std::string> given) : given_(std::move(given)) {}
  bool has(const std::string& name) const { return given_.contains(name); }
  std::string text(const std::string& name, const std::string& otherwise) const;
  /// Throws UsageError where it is not a whole number from 1.
  int64_t number(const std::string& name, int64_t otherwise) const;
  /// The one number that was given, or all of these.
  std::vector<int64_t> numbers(const std::string& name, std::vector<int64_t> otherwise) const;

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

/// What a benchmark's main() does. Results go to --json FILE; an exception is a message and an exit code.
int run_program(int argc, char** argv, const Program& program);

/// How a shell calls this program's serve(); its words follow.
std::string serve_command();

/// The same for a contender of several processes, which find each other through their environment.
std::vector<std::string> serve_commands(int processes, const std::string& words);

/// The file of this program.
std::string own_path();

/// A TCP port on this host that nobody listened on just now.
int free_port();

inline constexpr Option fashion_mnist_option{"--data", "FOLDER",
                                             "where Fashion-MNIST lies; default where Debian has it"};

/// The folder with Fashion-MNIST; says that nothing was measured where there is none.
std::optional<std::string> find_fashion_mnist(const Arguments& arguments);

}  // namespace lockstep::bench
