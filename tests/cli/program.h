// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "support/processes.h"

namespace lockstep::cli {

using test::eventually;

using Words = std::vector<std::string>;
Words operator+(Words a, const Words& b);

/// A program of the build that this test belongs to, such as "bin/lockstep". Its path is not the compiler's to know:
/// the objects of tests are the same for all presets.
std::string built(const std::string& path);

/// How a program ended and what it wrote.
struct Ended {
  int exit_code = -1;  // 128 + signal where one killed it
  std::string out;
  std::string err;
};

struct ProgramOptions {
  std::string program = built("bin/lockstep");
  std::string input = {};                               // its standard input, to its end
  std::map<std::string, std::string> environment = {};  // on top of ours; an empty value unsets
  std::vector<int> ignored_signals = {};                // as nohup does
  bool terminal = false;                                // standard streams are a terminal's; `out` has all
};

/// The built lockstep program (or another), started by a test; killed when this is destroyed or the test dies.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments, ProgramOptions options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t process() const { return process_; }
  void send(int signal) const;
  void type(const std::string& keys) const;
  /// Reads its output until `out` holds this text so many times. Fails the test after 30 s.
  void wait_for_output(const std::string& text, int times = 1);
  /// Reads to the end of its output and waits for it. Fails the test, and kills it, after 60 s.
  Ended wait();
  /// Reads no more of its standard output: it sees a closed pipe.
  void stop_reading();
  const std::string& out() const { return out_; }

 private:
  bool read_some(std::chrono::milliseconds time);

  pid_t process_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  int in_fd_ = -1;
  std::string out_;
  std::string err_;
};

/// `lockstep ARGUMENTS...`, from start to end.
Ended run_program(std::vector<std::string> arguments, ProgramOptions options = {});

/// The same, of a command that must end well: the test fails where it does not.
void expect_success(const Words& arguments);

/// The arguments of a training that takes less than a second, as far as "--out".
Words small();

/// What `lockstep hash` says of this file or run, with its newline.
std::string hash_of(const std::string& path);

/// `lockstep run RUN_ARGUMENTS... -- sh -c SCRIPT`.
std::vector<std::string> run_script(std::vector<std::string> run_arguments, const std::string& script);

/// The lines of a text, without their newlines.
std::vector<std::string> lines_of(const std::string& text);

/// A process's state as ps shows it ('S', 'T', 'Z', ...); 'X' when there is none.
char state_of(pid_t process);
/// Whether a process is there and no zombie.
bool is_alive(pid_t process);

}  // namespace lockstep::cli
