// SPDX-License-Identifier: Apache-2.0
#include "lockstep/launch/launcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "launch/supervisor.h"
#include "support/processes.h"
#include "support/temporary_folder.h"

namespace lockstep::launch {
namespace {

using test::eventually;

// Of a launcher whose rank takes no notice of the signal, and ends well after it.
int exit_code_after_sigterm(bool ends_on_signal) {
  const test::TemporaryFolder folder;
  const std::string deaf = folder.file("deaf"), told = folder.file("told");
  Options options;
  options.processes = 1;
  options.ends_on_signal = ends_on_signal;
  options.program = {"sh", "-c", "trap '' TERM; touch " + deaf + "; until [ -e " + told + " ]; do sleep 0.05; done"};
  const pid_t launcher = fork();
  if (launcher == 0) _exit(run(options));
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(deaf); }));
  kill(launcher, SIGTERM);
  std::ofstream(told).close();
  int status = 0;
  waitpid(launcher, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(Launcher, TellsOfASignalThatItsRanksOverheard) {
  EXPECT_EQ(exit_code_after_sigterm(false), 0);
  EXPECT_EQ(exit_code_after_sigterm(true), 128 + SIGTERM);
}

TEST(Launcher, LeavesSignalsAsTheyWere) {
  signal(SIGCHLD, SIG_IGN);
  { const Signals signals; }
  EXPECT_EQ(signal(SIGCHLD, SIG_DFL), SIG_IGN);
  EXPECT_EQ(signal(SIGPIPE, SIG_DFL), SIG_DFL);
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD}) EXPECT_FALSE(sigismember(&blocked, number)) << number;
}

// As verify, speedup and sweep do. A rank that the signal doesn't reach ends well; dash would take
// whatever it blocks, and bash overlooks a signal while it waits for a command such as touch.
TEST(Launcher, PassesSignalsOnInItsSecondRunToo) {
  const test::TemporaryFolder folder;
  const std::string begun = folder.file("begun");
  Options first, second;
  first.processes = second.processes = 1;
  first.program = {"true"};
  second.program = {"bash", "-c", ": >" + begun + "; exec sleep 3"};
  const pid_t launcher = fork();
  if (launcher == 0) _exit(run(first) == 0 ? run(second) : 99);
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(begun); }));
  kill(launcher, SIGINT);
  int status = 0;
  waitpid(launcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

// As CUDA's own do where the launcher has asked for devices before. Who takes it is chance: so ten ends.
TEST(Launcher, NoticesAnEndOfWhichAThreadThatIsNotItsOwnTakesTheSignal) {
  Options options;
  options.processes = 1;
  options.program = {"sh", "-c", "exec >&- 2>&-; sleep 0.05"};
  const pid_t launcher = fork();
  if (launcher == 0) {
    std::thread([] {
      for (volatile bool spins = true; spins;) continue;
    }).detach();
    for (int i = 0; i < 10; ++i)
      if (run(options) != 0) _exit(1);
    _exit(0);
  }
  int status = -1;
  EXPECT_TRUE(eventually([&] { return waitpid(launcher, &status, WNOHANG) == launcher; }));
  kill(launcher, SIGKILL);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep::launch
