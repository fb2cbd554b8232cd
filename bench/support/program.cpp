// SPDX-License-Identifier: Apache-2.0
#include "support/program.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace lockstep::bench {

namespace {

std::string written(const Option& option) {
  return option.value.empty() ? option.name : option.name + " " + option.value;
}

void print_help(const std::string& name, const std::string& measures, const std::vector<Option>& options) {
  std::printf("%s\n\nusage: %s", measures.c_str(), name.c_str());
  for (const Option& option : options) std::printf(" [%s]", written(option).c_str());
  std::printf("\n\n");
  for (const Option& option : options) std::printf("  %-16s  %s\n", written(option).c_str(), option.meaning.c_str());
}

std::map<std::string, std::string> read(const std::vector<std::string>& words, const std::vector<Option>& options) {
  std::map<std::string, std::string> given;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto option = std::ranges::find(options, words[i], &Option::name);
    const bool known = option != options.end(), whole = known && (option->value.empty() || i + 1 < words.size());
    if (!whole) {
      std::string expected;
      for (const Option& one : options) expected += (expected.empty() ? "" : ", ") + written(one);
      throw std::invalid_argument("got '" + words[i] + (known ? "' without a value" : "'") + ", expected " + expected);
    }
    given[option->name] = option->value.empty() ? "" : words[++i];
  }
  return given;
}

int run(const std::string& name, const std::vector<std::string>& words, const Program& program) {
  if (program.serve != nullptr && !words.empty() && words[0] == "--serve") {
    program.serve({words.begin() + 1, words.end()});
    return 0;
  }
  std::vector<Option> options{{"--json", "FILE", "writes the results to a file, too"}};
  options.insert(options.end(), program.options.begin(), program.options.end());
  options.push_back({"--help", "", "prints this"});
  const Arguments arguments(read(words, options));
  if (arguments.has("--help")) {
    print_help(name, program.measures, options);
    return 0;
  }
  const nlohmann::json results = program.measure(arguments);
  if (arguments.has("--json")) {
    std::ofstream file(arguments.text("--json", ""));
    if (!(file << results.dump(1) << '\n')) throw std::runtime_error("cannot write " + arguments.text("--json", ""));
  }
  return 0;
}

}  // namespace

std::string Arguments::text(const std::string& name, const std::string& otherwise) const {
  const auto found = given_.find(name);
  return found == given_.end() ? otherwise : found->second;
}

int64_t Arguments::number(const std::string& name, int64_t otherwise) const {
  if (!has(name)) return otherwise;
  const std::string& word = given_.at(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 1)
    throw std::invalid_argument(name + " is '" + word + "', expected a whole number from 1");
  return value;
}

int run_program(int argc, char** argv, const Program& program) {
  const std::string name = std::filesystem::path(argv[0]).filename();
  try {
    return run(name, {argv + 1, argv + argc}, program);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
}

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

std::string serve_command() {
  return std::string("'").append(own_path()).append("' --serve ");
}

int free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool known = bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(listener);
  if (!known) throw std::runtime_error("bench: no free port on 127.0.0.1");
  return ntohs(address.sin_port);
}

bool has_fashion_mnist(const std::string& folder) {
  if (std::filesystem::exists(folder + "/train-images-idx3-ubyte.gz")) return true;
  std::printf("no Fashion-MNIST in %s (Debian: dataset-fashion-mnist): nothing was measured\n", folder.c_str());
  return false;
}

}  // namespace lockstep::bench
