// SPDX-License-Identifier: Apache-2.0
#include "launch/supervisor.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/members.h"

namespace lockstep::launch {
namespace {

// So long may a rank be stopped where the others can go on without it.
constexpr std::chrono::milliseconds kStopped{2000};

constexpr int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int other_signals[] = {SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

std::string name_of_signal(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? text("signal ", signal) : text("SIG", name);
}

std::string seconds(std::chrono::milliseconds time) {
  return text(time.count() / 1000.0, " s");
}

}  // namespace

Signals::Signals() {
  sigaction(SIGCHLD, nullptr, &child_before_);
  sigaction(SIGPIPE, nullptr, &pipe_before_);
  ::signal(SIGCHLD, SIG_DFL);  // ignored, ranks would vanish before we ask how they ended
  ::signal(SIGPIPE, SIG_IGN);  // writing says EPIPE
  sigset_t handled;
  sigemptyset(&handled);
  for (int signal : ending_signals) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&handled, signal);
  }
  for (int signal : other_signals) sigaddset(&handled, signal);
  if (sigprocmask(SIG_BLOCK, &handled, &before_) != 0) throw_errno("sigprocmask");
  fd_ = Descriptor(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw_errno("signalfd");
}

// One program may launch several times, as `lockstep verify` does, and its next ranks take over what stands here.
Signals::~Signals() {
  sigaction(SIGCHLD, &child_before_, nullptr);
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int Signals::next() {
  signalfd_siginfo info{};
  return read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

void Supervisor::say(const std::string& message) {
  output_.add(2, text("lockstep run: ", message, "\n"));
}

void Supervisor::start(int rank, const RankCommand& command) {
  try {
    ranks_.push_back(start_rank(rank, command));
  } catch (...) {
    kill_now();
    for (const auto& started : ranks_) waitpid(started.process, nullptr, 0);
    throw;
  }
}

int Supervisor::running() const {
  return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank.running; }));
}

void Supervisor::survive(std::unique_ptr<Roster> roster, Replace replace) {
  roster_ = std::move(roster);
  replace_ = std::move(replace);
}

int Supervisor::run(TerminalInput* input) {
  while (running() > 0 || awaits_others()) {
    wait_for_events(input);
    while (const int signal = signals_.next()) on_signal(signal);
    kill_stopped();
    reap();
    replace_lost();
    hear_roster();
    if (kill_at_ && Clock::now() >= *kill_at_) {
      say(text(running(), " still ran ", seconds(grace_), " later: killed"));
      kill_now();
    }
    output_.flush();
  }
  read_remains();
  output_.drain();
  if (roster_) roster_->end(exit_code_.value_or(0));
  return exit_code_.value_or(0);
}

int Supervisor::poll_timeout() const {
  if (!waiting_.empty() || (roster_ && roster_->has_other_hosts())) return 50;  // they don't wake us
  if (roster_ && !kill_at_) return 200;  // a signal that says of a stop may go to a thread that is not ours
  // Nothing tells that a terminal's foreground has come back to us: look now and then.
  if (!kill_at_) return isatty(STDIN_FILENO) ? 500 : -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*kill_at_ - Clock::now());
  return std::max<int>(0, static_cast<int>(left.count()) + 1);
}

void Supervisor::wait_for_events(TerminalInput* input) {
  std::vector<pollfd> events{{signals_.fd(), POLLIN, 0}};
  events.push_back(input == nullptr ? pollfd{-1, 0, 0} : input->wanted());
  events.push_back(output_.empty() ? pollfd{-1, 0, 0} : pollfd{output_.next_fd(), POLLOUT, 0});
  std::vector<RankStream*> streams;
  for (auto& rank : ranks_)
    for (auto& stream : rank.streams)
      if (stream.pipe && !output_.full()) {
        streams.push_back(&stream);
        events.push_back({stream.pipe.get(), POLLIN, 0});
      }
  for (const auto& rank : ranks_)
    if (rank.running) events.push_back({rank.end.get(), POLLIN, 0});
  if (poll(events.data(), events.size(), poll_timeout()) <= 0) return;
  if (events[1].fd >= 0 && events[1].revents != 0) input->advance();
  for (size_t s = 0; s < streams.size(); ++s)
    if (events[3 + s].revents != 0) read_from(*streams[s]);
}

void Supervisor::read_from(RankStream& stream) {
  char bytes[1 << 16];
  const ssize_t count = read(stream.pipe.get(), bytes, sizeof bytes);
  if (count > 0) output_.add(stream.fd, stream.lines.feed({bytes, static_cast<size_t>(count)}));
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // Nobody reads our output any more: let the rank's next write find that out, as it would without us.
  if (count <= 0 || output_.is_broken(stream.fd)) {
    output_.add(stream.fd, stream.lines.finish());
    stream.pipe.close();
  }
}

// All ranks have ended. What they wrote is in the pipes; a process that they left behind may still hold the other ends,
// and is not waited for.
void Supervisor::read_remains() {
  for (auto& rank : ranks_)
    for (auto& stream : rank.streams) {
      for (pollfd ready{stream.pipe.get(), POLLIN, 0}; stream.pipe && poll(&ready, 1, 0) == 1;) {
        read_from(stream);
        output_.flush();
      }
      output_.add(stream.fd, stream.lines.finish());
    }
}

// The others would wait for it until the time-out, and go on without it: it must not wake up then and write into their
// run.
void Supervisor::kill_stopped() {
  if (!roster_ || told_ != 0) return;
  for (auto& rank : ranks_) {
    if (!rank.running) continue;
    const auto process = static_cast<id_t>(rank.process);
    for (siginfo_t info{};
         waitid(P_PID, process, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid == rank.process;
         info = {}) {
      rank.stopped_at.reset();
      if (info.si_code != CLD_CONTINUED) rank.stopped_at = Clock::now();
    }
    if (!rank.stopped_at || Clock::now() - *rank.stopped_at < kStopped) continue;
    rank.stopped_at.reset();
    say(text("rank ", rank.rank, " (process ", rank.process, ") has been stopped for ", seconds(kStopped),
             " while others wait for it: killed"));
    kill(-rank.process, SIGKILL);
  }
}

void Supervisor::reap() {
  std::vector<std::pair<RankProcess*, int>> found;
  for (auto& rank : ranks_) {
    int status = 0;
    if (rank.running && waitpid(rank.process, &status, WNOHANG) == rank.process) found.emplace_back(&rank, status);
  }
  // When several have ended since we last looked: one that was killed is the reason why others gave up.
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return WIFSIGNALED(a.second) && !WIFSIGNALED(b.second); });
  for (const auto& [rank, status] : found) rank->running = false;
  for (const auto& [rank, status] : found) ended(*rank, status);
}

void Supervisor::ended(RankProcess& rank, int status) {
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  one_has_finished_ |= code == 0;
  if (code == 0 || exit_code_) return;
  if (is_survived(rank, status)) return lose(rank, status);
  exit_code_ = code;
  failed(rank, status, code);
}

// A newcomer that never began to work harms nobody, however it ends. A rank that ends by itself says that something is
// wrong, which the others would meet as well.
bool Supervisor::is_survived(const RankProcess& rank, int status) const {
  if (!roster_ || told_ != 0) return false;
  const bool others_left = running() > 0 || one_has_finished_ || roster_->has_other_hosts();
  return waiting_.contains(rank.process) || (WIFSIGNALED(status) && others_left);
}

void Supervisor::lose(const RankProcess& rank, int status) {
  const std::string who = text("rank ", rank.rank, " (process ", rank.process, ") ");
  const std::string how = WIFSIGNALED(status) ? text("was killed by ", name_of_signal(WTERMSIG(status)))
                                              : text("ended with exit code ", WEXITSTATUS(status));
  if (waiting_.erase(rank.process) > 0) {
    roster_->forget(rank.rank, rank.process);
    return say(text(who, how, " before it could take part; its place stays empty"));
  }
  if (one_has_finished_) return say(text(who, how, ", when all was done"));
  say(text(who, how, roster_->lose(rank.rank)));
  lost_.insert(rank.rank);
}

void Supervisor::replace_lost() {
  for (const int rank : std::exchange(lost_, {})) {
    if (exit_code_ || told_ != 0 || roster_->is_too_small()) continue;
    try {
      if (auto newcomer = replace_(rank)) {
        roster_->expect(rank, newcomer->process);
        waiting_.insert(newcomer->process);
        ranks_.push_back(std::move(*newcomer));
      }
    } catch (const std::exception& error) {
      say(text("no process takes the place of rank ", rank, ": ", error.what()));
    }
  }
}

void Supervisor::hear_roster() {
  if (!roster_) return;
  roster_->look();
  if (roster_->is_late() && !came_late_) come_late();
  for (const auto& rank : ranks_) {
    if (!rank.running || !waiting_.contains(rank.process) || !roster_->has_admitted(rank.rank, rank.process)) continue;
    waiting_.erase(rank.process);
    say(text("rank ", rank.rank, " (process ", rank.process, ") takes part"));
  }
  if (exit_code_) return;
  if (roster_->is_too_small()) exit_code_ = comm::members::too_few_exit_code;
  if (const auto end = roster_->distant_end(); end && end->exit_code != 0 && told_ == 0) {
    exit_code_ = end->exit_code;
    say(text(end->why, others()));
    end_others();
  }
}

void Supervisor::come_late() {
  came_late_ = true;
  say(text("the other hosts are at work: ", running(), running() == 1 ? " rank joins" : " ranks join", " them"));
  for (const auto& rank : ranks_) {
    if (!rank.running) continue;
    roster_->expect(rank.rank, rank.process);
    waiting_.insert(rank.process);
  }
}

bool Supervisor::awaits_others() const {
  return roster_ && (!exit_code_ || roster_->is_too_small()) && roster_->awaits_others(one_has_finished_ || exit_code_);
}

void Supervisor::failed(const RankProcess& rank, int status, int code) {
  const std::string who = text("rank ", rank.rank, " (process ", rank.process, ") ");
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (signal == 0)
    say(text(who, "ended with exit code ", code, others()));
  else if (signal != told_)
    say(text(who, "was killed by ", name_of_signal(signal), " (", strsignal(signal),
             signal == SIGKILL ? "; the kernel's, when memory runs out)" : ")", others()));
  end_others();
}

// What becomes of those that run, as the end of a sentence.
std::string Supervisor::others() const {
  return running() == 0 ? "" : text("; ending the other ", running());
}

void Supervisor::end_others() {
  if (running() == 0) return;
  if (told_ == 0) send_all(SIGTERM);
  kill_at_ = Clock::now() + grace_;
}

void Supervisor::on_signal(int signal) {
  if (std::find(std::begin(ending_signals), std::end(ending_signals), signal) == std::end(ending_signals)) {
    send_all(signal);
    if (signal == SIGTSTP) kill(getpid(), SIGSTOP);  // until SIGCONT, which comes here and is passed on too
    return;
  }
  // A tool that ends a process and its group (timeout, a shell) sends the same signal twice.
  const bool again = told_ != 0 && Clock::now() - told_at_ > std::chrono::seconds(1);
  if (told_ == 0) {
    told_ = signal;
    told_at_ = Clock::now();
    say(text(name_of_signal(signal), " passed on to ", running(), running() == 1 ? " rank" : " ranks",
             "; a second one kills"));
    send_all(signal);
  } else if (again) {
    say(text(name_of_signal(signal), " again: ", running(), " killed"));
    if (!exit_code_) exit_code_ = 128 + signal;
    kill_now();
  }
}

void Supervisor::send_all(int signal) {
  for (const auto& rank : ranks_) {
    if (!rank.running) continue;
    kill(-rank.process, signal);
    // A stopped process takes a signal when it goes on.
    if (signal == SIGTERM || signal == SIGHUP || signal == SIGINT || signal == SIGQUIT) kill(-rank.process, SIGCONT);
  }
}

void Supervisor::kill_now() {
  for (const auto& rank : ranks_)
    if (rank.running) kill(-rank.process, SIGKILL);
  kill_at_.reset();
}

}  // namespace lockstep::launch
