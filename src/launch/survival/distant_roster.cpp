// SPDX-License-Identifier: Apache-2.0
#include "launch/survival/distant_roster.h"

#include <sstream>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

namespace members = comm::members;

// So long may a host take to say that it keeps the roster, before the next one is asked.
constexpr std::chrono::milliseconds kAsk{500};
constexpr std::chrono::seconds kLastWord{2};  // so long is a connection tried for at the end

}  // namespace

DistantRoster::DistantRoster(OwnHost own, const std::vector<std::string>& hosts, int port, RosterOptions options)
    : own_(std::move(own)),
      options_(std::move(options)),
      hosts_(hosts),
      port_(port),
      ask_until_(Clock::now() + kAsk),
      pending_(hosts[0], port) {
  set_nonblocking(own_.door);
  for (int rank = own_.first; rank < own_.first + own_.count; ++rank) working_.insert(rank);
  if (own_.first == 0) ask_next();
}

std::string DistantRoster::lose(int rank) {
  say_news();
  working_.erase(rank);
  if (is_introduced_) link_->say(text("lost ", rank));
  return text("; ", pending_.host(), " is told");
}

void DistantRoster::look() {
  if (end_ || is_to_keep()) return;
  answer_others();
  if (!link_) return advance();
  for (const std::string& line : link_->hear()) hear(line);
  if (end_) return;
  const bool is_late_answer = !is_introduced_ && Clock::now() > try_until_.value_or(ask_until_);
  if (is_elsewhere_) {
    ask_again();
  } else if (link_->is_lost() || is_late_answer) {
    if (is_introduced_ || try_until_)
      lose_keeper();
    else
      ask_next();
  } else {
    say_news();
  }
}

void DistantRoster::advance() {
  if (Descriptor socket = pending_.advance()) {
    link_.emplace(std::move(socket), options_.silent);
    return;
  }
  if (!pending_.is_refused() && Clock::now() < try_until_.value_or(ask_until_)) return;
  if (!try_until_) return ask_next();
  if (!pending_.is_refused()) ++silent_;
  turn_to_next();
}

// The first host's launcher may be started later. Where it is lost one of the others keeps the roster; and when it
// comes back, it begins no new one beside that.
void DistantRoster::ask_next() {
  link_.reset();
  asked_ = (asked_ + 1) % hosts_.size();
  is_beginner_ = own_.first == 0 && asked_ == 0 && !others_work_;
  if (asked_ == 0) others_work_ = false;
  pending_ = PendingLink(hosts_[asked_], port_);
  ask_until_ = Clock::now() + kAsk;
}

// In a succession the one that is to keep the roster may notice later than this one.
void DistantRoster::ask_again() {
  is_elsewhere_ = false;
  if (!try_until_) return ask_next();
  link_.reset();
  pending_ = PendingLink(candidates_.front().address, candidates_.front().door);
}

void DistantRoster::answer_others() {
  for (;;) {
    Descriptor socket(accept4(own_.door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) return;
    HostLink(std::move(socket), options_.silent).say(newest_.number < 0 ? "none" : "another");
  }
}

// All that a keeper has to know: another one may have been told of a part.
void DistantRoster::introduce() {
  std::string line = text("host ", own_.first, " ", own_.count, " ", port_of(own_.door), " ", newest_.number);
  for (const int rank : working_) line += text(" ", rank);
  link_->say(line);
  is_introduced_ = true;
  ready_.clear();
  done_is_shared_ = false;
  again_ = -1;
  say_news();
}

void DistantRoster::say_news() {
  if (!is_introduced_) return;
  if (!done_is_shared_ && own_.store.has(members::done_key)) {
    done_is_shared_ = true;
    link_->say("done");
  }
  if (again_ < newest_.number && own_.store.has(members::again_key(newest_.number))) {
    again_ = newest_.number;
    link_->say(text("again ", again_));
  }
  for (const Newcomer& newcomer : expected_)
    if (!ready_.contains(newcomer) && own_.store.has(members::ready_key(newcomer.first, newcomer.second))) {
      ready_.insert(newcomer);
      link_->say(text("ready ", newcomer.first, " ", newcomer.second));
    }
}

void DistantRoster::hear(const std::string& line) {
  std::istringstream in(line);
  std::string what;
  in >> what;
  std::string rest;
  std::getline(in >> std::ws, rest);
  std::istringstream numbers(rest);
  if (what == "keeper") {
    introduce();
  } else if (what == "none" || what == "another") {
    is_elsewhere_ = true;
    others_work_ = others_work_ || what == "another";
  } else if (what == "late") {
    is_late_ = true;
    working_.clear();
  } else if (what == "members") {
    newest_ = members::parse(rest);
    own_.store.set(members::key, rest);
    if (!why_.empty()) options_.say(text(why_, "; the launcher on ", pending_.host(), " keeps the list of ranks now"));
    why_.clear();
    try_until_.reset();
  } else if (what == "hosts") {
    known_ = known_hosts_of(rest);
    known_since_ = Clock::now();
  } else if (int rank = 0, process = 0; what == "admitted" && numbers >> rank >> process) {
    working_.insert(rank);
    expected_.erase({rank, process});
  } else if (what == "done") {
    own_.store.set(members::done_key, "1");
    done_is_shared_ = true;
  } else if (what == "given") {
    end_ = DistantEnd{text("the launcher on ", pending_.host(), " has given this host up, which was silent"), 1};
  } else if (int code = 0; what == "end" && numbers >> code) {
    end_ = DistantEnd{code == 0 ? "" : text(pending_.host(), " has ended with exit code ", code), code};
  }
}

void DistantRoster::lose_keeper() {
  const bool is_silent = !link_->is_closed();
  if (is_silent) {
    link_->say("given up");
    given_up_.push_back(std::move(*link_));
  }
  link_.reset();
  is_introduced_ = false;
  if (own_.store.has(members::done_key)) {
    end_ = DistantEnd{"", 0};
    return;
  }
  if (why_.empty()) {
    why_ = text("the launcher on ", pending_.host(), is_silent ? " is silent" : " is gone");
    if (known_.places.empty()) {
      end_ = DistantEnd{text(why_, ", and not all hosts had come yet"), 1};
      return;
    }
    candidates_ = {known_.places.begin(), known_.places.end()};
    silent_ = Clock::now() - known_since_ < options_.remembered() ? known_.silent : 0;
  }
  silent_ += is_silent;
  turn_to_next();
}

void DistantRoster::turn_to_next() {
  if (try_until_ && !candidates_.empty()) candidates_.pop_front();
  try_until_ = Clock::now() + options_.silent;
  if (candidates_.empty()) {
    end_ = DistantEnd{text(why_, ", and so are all others"), 1};
  } else if (candidates_.front().first == own_.first) {
    is_successor_ = true;
  } else {
    pending_ = PendingLink(candidates_.front().address, candidates_.front().door);
  }
}

Succession DistantRoster::hand_over() {
  if (is_successor_) {
    own_.address = candidates_.front().address;
    candidates_.pop_front();
  }
  return {.own = std::move(own_),
          .why = why_,
          .newest = newest_,
          .working = working_,
          .expected = expected_,
          .others = {candidates_.begin(), candidates_.end()},
          .silent = silent_,
          .given_up = std::move(given_up_)};
}

void DistantRoster::end(int exit_code) {
  // The ranks may have ended before there was a connection.
  for (const auto until = Clock::now() + kLastWord;
       !is_introduced_ && !end_ && !is_to_keep() && Clock::now() < until;) {
    look();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (is_introduced_) link_->say(text("end ", exit_code));
}

}  // namespace lockstep::launch
