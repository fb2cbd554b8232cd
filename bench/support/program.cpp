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
#include <utility>

namespace lockstep::bench {
namespace {

bool takes_value(const Option& option) {
  return *option.value != '\0';
}

std::string written(const Option& option) {
  return std::string(option.name) + (takes_value(option) ? " " : "") + option.value;
}

void print_help(const std::string& name, const std::string& measures, const std::vector<Option>& options) {
  std::printf("%s\n\nusage: %s", measures.c_str(), name.c_str());
  for (const Option& option : options) std::printf(" [%s]", written(option).c_str());
  std::printf("\n\n");
  for (const Option& option : options) std::printf("  %-16s  %s\n", written(option).c_str(), option.meaning);
}

std::map<std::string, std::string> read(const std::vector<std::string>& words, const std::vector<Option>& options) {
  std::map<std::string, std::string> given;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto option = std::ranges::find_if(options, [&](const Option& one) { return one.name == words[i]; });
    const bool known = option != options.end(), whole = known && (!takes_value(*option) || i + 1 < words.size());
    if (!whole) {
      std::string expected;
      for (const Option& one : options) expected += (expected.empty() ? "" : ", ") + written(one);
      throw UsageError("got '" + words[i] + (known ? "' without a value" : "'") + ", expected " + expected);
    }
    given[option->name] = takes_value(*option) ? words[++i] : "";
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
  const std::string path = arguments.text("--json", "");
  std::ofstream file;
  if (!path.empty()) file.open(path);
  if (!file) throw std::runtime_error("cannot write " + path);
  file << program.measure(arguments).dump(1) << '\n' << std::flush;
  if (!path.empty() && !file) throw std::runtime_error("cannot write " + path);
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
    throw UsageError(name + " is '" + word + "', expected a whole number from 1");
  return value;
}

std::vector<int64_t> Arguments::numbers(const std::string& name, std::vector<int64_t> otherwise) const {
  return has(name) ? std::vector{number(name, 0)} : std::move(otherwise);
}

int run_program(int argc, char** argv, const Program& program) {
  const std::string name = std::filesystem::path(argv[0]).filename();
  try {
    return run(name, {argv + 1, argv + argc}, program);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

std::string serve_command() {
  // GCC 12 believes that "'" + own_path() overflows.
  return std::string("'").append(own_path()).append("' --serve ");
}

std::vector<std::string> serve_commands(int processes, const std::string& words) {
  const std::string serve = serve_command().append(words);
  if (processes == 1) return {serve};
  std::vector<std::string> out;
  const std::string port = std::to_string(free_port());
  for (int rank = 0; rank < processes; ++rank)
    out.push_back(std::string("env RANK=")
                      .append(std::to_string(rank))
                      .append(" WORLD_SIZE=")
                      .append(std::to_string(processes))
                      .append(" MASTER_ADDR=127.0.0.1 MASTER_PORT=")
                      .append(port)
                      .append(" ")
                      .append(serve));
  return out;
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

std::optional<std::string> find_fashion_mnist(const Arguments& arguments) {
  std::string folder = arguments.text(fashion_mnist_option.name, "/usr/share/datasets/fashion-mnist");
  if (std::filesystem::exists(folder + "/train-images-idx3-ubyte.gz")) return folder;
  std::printf("no Fashion-MNIST in %s (Debian: dataset-fashion-mnist): nothing was measured\n", folder.c_str());
  return std::nullopt;
}

}  // namespace lockstep::bench
