// SPDX-License-Identifier: Apache-2.0
#include "crashes/experiment.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <stdexcept>
#include <vector>

#include "lockstep/base/detail/descriptor.h"

namespace lockstep::crashes {
namespace {

// Fields with a byte 0 behind each.
void send(const Descriptor& to, const std::vector<std::string>& fields) {
  std::string all;
  for (const std::string& field : fields) (all += field) += '\0';
  write_all(to.get(), all);
}

std::vector<std::string> receive(const Descriptor& from) {
  std::string all;
  char bytes[4096];
  for (ssize_t count; (count = read(from.get(), bytes, sizeof bytes)) > 0;) all.append(bytes, count);
  std::vector<std::string> fields;
  for (size_t at = 0, end; (end = all.find('\0', at)) != std::string::npos; at = end + 1)
    fields.push_back(all.substr(at, end - at));
  return fields;
}

[[noreturn]] void work_in_child(const Descriptor& to, const std::string& folder, int64_t number, Fault fault,
                                const std::function<std::string()>& work) {
  alarm(60);
  std::string result, error;
  watch(folder, number, fault);
  try {
    result = work();
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  watch_no_more();
  send(to, {result, error, std::to_string(calls_seen()), call_that_met_it()});
  _exit(0);
}

}  // namespace

Ended run_apart(const std::string& folder, int64_t number, Fault fault, const std::function<std::string()>& work) {
  Pipe pipe = make_pipe();
  const pid_t child = fork();
  if (child < 0) throw_errno("fork");
  if (child == 0) work_in_child(pipe.write, folder, number, fault, work);
  pipe.write.close();
  const auto fields = receive(pipe.read);
  int status = 0;
  waitpid(child, &status, 0);
  Ended ended;
  ended.was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (WIFSIGNALED(status) && !ended.was_killed)
    ended.strange = std::string("it was ended by SIG") + sigabbrev_np(WTERMSIG(status));
  if (WIFEXITED(status) && fields.size() != 4) ended.strange = "it ended in the middle of its work";
  if (fields.size() != 4) return ended;
  ended.result = fields[0];
  ended.error = fields[1];
  ended.calls = std::stoll(fields[2]);
  ended.met = fields[3];
  return ended;
}

}  // namespace lockstep::crashes
