// SPDX-License-Identifier: Apache-2.0
// Functions of the C library by which threads wait, as a program sees them that these are linked into: its own code,
// libstdc++ and libtorch call these here. For a simulated thread they ask the scheduler; for any other they are the
// library's own. Only one simulated thread runs at a time, so that a mutex is only found taken where its owner was made
// to wait while it held it.
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <new>

#include "simulation/world/real.h"
#include "simulation/world/scheduler.h"

#define LOCKSTEP_INTERPOSED extern "C" __attribute__((visibility("default")))

extern "C" const char __executable_start;
extern "C" const char etext;

namespace lockstep::simulation {
namespace {

template <class Function>
Function* next_of(Function*& kept, const char* name) {
  if (kept == nullptr) kept = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  return kept;
}
#define LOCKSTEP_REAL(name)            \
  ([]() {                              \
    static decltype(&::name) function; \
    return next_of(function, #name);   \
  }())

Scheduler* here() {
  return Scheduler::of_this_thread();
}

Time nanoseconds(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

// Only where this program's own code locks: what libraries do in their first calls must not move a seed.
bool is_own(const void* caller) {
  return caller >= &__executable_start && caller < &etext;
}

int lock(Scheduler& scheduler, pthread_mutex_t* mutex) {
  for (;;) {
    const int result = LOCKSTEP_REAL(pthread_mutex_trylock)(mutex);
    if (result != EBUSY) return result;
    if (!scheduler.lend_to_owner(mutex->__data.__owner)) return LOCKSTEP_REAL(pthread_mutex_lock)(mutex);
    scheduler.block(mutex, "a mutex");
  }
}

int unlock(Scheduler& scheduler, pthread_mutex_t* mutex) {
  const int result = LOCKSTEP_REAL(pthread_mutex_unlock)(mutex);
  scheduler.wake(mutex);
  scheduler.give_back_loan();
  return result;
}

int wait(Scheduler& scheduler, pthread_cond_t* condition, pthread_mutex_t* mutex, Time until) {
  // What is between letting go of the mutex and waiting must not let another thread run.
  LOCKSTEP_REAL(pthread_mutex_unlock)(mutex);
  scheduler.wake(mutex);
  const bool woken = scheduler.block(condition, "a condition", until);
  lock(scheduler, mutex);
  return woken ? 0 : ETIMEDOUT;
}

long futex(Scheduler& scheduler, int* word, int operation, int value, const timespec* time, int* other, int mask) {
  const int what = operation & ~(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
  if (what == FUTEX_WAKE || what == FUTEX_WAKE_BITSET) {
    scheduler.wake(word, value);
    return value;  // nobody looks at how many there were
  }
  if (what != FUTEX_WAIT && what != FUTEX_WAIT_BITSET)
    return LOCKSTEP_REAL(syscall)(SYS_futex, word, operation, value, time, other, mask);
  if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
    errno = EAGAIN;
    return -1;
  }
  Time until = kNever;
  if (time != nullptr) until = nanoseconds(*time) + (what == FUTEX_WAIT ? scheduler.now() : 0);
  if (scheduler.block(word, "an atomic or a future", until)) return 0;
  errno = ETIMEDOUT;
  return -1;
}

}  // namespace

namespace real {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  return LOCKSTEP_REAL(pthread_create)(thread, attributes, body, argument);
}
int pthread_join(pthread_t thread, void** result) {
  return LOCKSTEP_REAL(pthread_join)(thread, result);
}
long syscall(long number, const void* a, long b, long c, const void* d, const void* e, long f) {
  return LOCKSTEP_REAL(syscall)(number, a, b, c, d, e, f);
}

}  // namespace real
}  // namespace lockstep::simulation

using namespace lockstep::simulation;

LOCKSTEP_INTERPOSED int pthread_create(pthread_t* handle, const pthread_attr_t* attributes, void* (*body)(void*),
                                       void* argument) noexcept {
  Scheduler* const scheduler = here();
  if (scheduler == nullptr) return LOCKSTEP_REAL(pthread_create)(handle, attributes, body, argument);
  struct Start {
    SimulatedThread& thread;
    Scheduler& scheduler;
  };
  auto* const start = new (std::nothrow) Start{scheduler->add_thread([=] { return body(argument); }), *scheduler};
  if (start == nullptr) return EAGAIN;
  const auto main = [](void* at) -> void* {
    const Start copy = *static_cast<Start*>(at);
    delete static_cast<Start*>(at);
    return Scheduler::begin(copy.thread, copy.scheduler);
  };
  SimulatedThread& thread = start->thread;
  const int result = LOCKSTEP_REAL(pthread_create)(&thread.handle, attributes, main, start);
  if (result != 0) {
    delete start;
    thread.state = SimulatedThread::State::ended;
    return result;
  }
  *handle = thread.handle;
  scheduler->maybe_yield();
  return 0;
}

LOCKSTEP_INTERPOSED int pthread_join(pthread_t handle, void** result) {
  if (Scheduler* const scheduler = here())
    if (SimulatedThread* const thread = scheduler->find(handle)) {
      while (thread->state != SimulatedThread::State::ended) scheduler->block(thread, "another thread's end");
      thread->joined = true;
    }
  return LOCKSTEP_REAL(pthread_join)(handle, result);
}

LOCKSTEP_INTERPOSED int pthread_detach(pthread_t handle) noexcept {
  if (Scheduler* const scheduler = here())
    if (SimulatedThread* const thread = scheduler->find(handle)) thread->joined = true;
  return LOCKSTEP_REAL(pthread_detach)(handle);
}

LOCKSTEP_INTERPOSED int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  Scheduler* const scheduler = here();
  if (scheduler == nullptr) return LOCKSTEP_REAL(pthread_mutex_lock)(mutex);
  if (is_own(__builtin_return_address(0))) scheduler->maybe_yield();
  return lock(*scheduler, mutex);
}

LOCKSTEP_INTERPOSED int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  Scheduler* const scheduler = here();
  return scheduler == nullptr ? LOCKSTEP_REAL(pthread_mutex_unlock)(mutex) : unlock(*scheduler, mutex);
}

LOCKSTEP_INTERPOSED int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  Scheduler* const scheduler = here();
  return scheduler == nullptr ? LOCKSTEP_REAL(pthread_cond_wait)(condition, mutex)
                              : wait(*scheduler, condition, mutex, kNever);
}

LOCKSTEP_INTERPOSED int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                               const timespec* until) {
  Scheduler* const scheduler = here();
  return scheduler == nullptr ? LOCKSTEP_REAL(pthread_cond_timedwait)(condition, mutex, until)
                              : wait(*scheduler, condition, mutex, nanoseconds(*until));
}

LOCKSTEP_INTERPOSED int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                               const timespec* until) {
  Scheduler* const scheduler = here();
  return scheduler == nullptr ? LOCKSTEP_REAL(pthread_cond_clockwait)(condition, mutex, clock, until)
                              : wait(*scheduler, condition, mutex, nanoseconds(*until));
}

LOCKSTEP_INTERPOSED int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  Scheduler* const scheduler = here();
  if (scheduler == nullptr) return LOCKSTEP_REAL(pthread_cond_signal)(condition);
  scheduler->wake(condition, 1);
  return 0;
}

LOCKSTEP_INTERPOSED int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  Scheduler* const scheduler = here();
  if (scheduler == nullptr) return LOCKSTEP_REAL(pthread_cond_broadcast)(condition);
  scheduler->wake(condition);
  return 0;
}

LOCKSTEP_INTERPOSED int sem_wait(sem_t* semaphore) {
  Scheduler* const scheduler = here();
  if (scheduler == nullptr) return LOCKSTEP_REAL(sem_wait)(semaphore);
  while (sem_trywait(semaphore) != 0) scheduler->block(semaphore, "a semaphore");
  return 0;
}

LOCKSTEP_INTERPOSED int sem_post(sem_t* semaphore) noexcept {
  const int result = LOCKSTEP_REAL(sem_post)(semaphore);
  if (Scheduler* const scheduler = here()) scheduler->wake(semaphore, 1);
  return result;
}

LOCKSTEP_INTERPOSED int sched_yield() noexcept {
  Scheduler* const scheduler = here();
  if (scheduler == nullptr) return LOCKSTEP_REAL(sched_yield)();
  scheduler->yield();
  return 0;
}

// A place on some core is no concern of who runs alone.
LOCKSTEP_INTERPOSED int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t* cores) noexcept {
  return here() == nullptr ? LOCKSTEP_REAL(pthread_setaffinity_np)(thread, size, cores) : 0;
}

LOCKSTEP_INTERPOSED int nanosleep(const timespec* time, timespec* left) {
  Scheduler* const scheduler = here();
  if (scheduler == nullptr) return LOCKSTEP_REAL(nanosleep)(time, left);
  scheduler->sleep(nanoseconds(*time));
  return 0;
}

LOCKSTEP_INTERPOSED int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  Scheduler* const scheduler = here();
  if (scheduler == nullptr) return LOCKSTEP_REAL(clock_nanosleep)(clock, flags, time, left);
  scheduler->block(nullptr, "a pause", nanoseconds(*time) + (flags & TIMER_ABSTIME ? 0 : scheduler->now()));
  return 0;
}

LOCKSTEP_INTERPOSED int clock_gettime(clockid_t clock, timespec* time) noexcept {
  Scheduler* const scheduler = here();
  if (scheduler == nullptr || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME))
    return LOCKSTEP_REAL(clock_gettime)(clock, time);
  const Time now = scheduler->read_clock();
  time->tv_sec = now / kSecond;
  time->tv_nsec = now % kSecond;
  return 0;
}

LOCKSTEP_INTERPOSED long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long words[6];
  for (long& word : words) word = va_arg(list, long);
  va_end(list);
  Scheduler* const scheduler = here();
  if (scheduler != nullptr && number == SYS_futex)
    return futex(*scheduler, reinterpret_cast<int*>(words[0]), static_cast<int>(words[1]), static_cast<int>(words[2]),
                 reinterpret_cast<const timespec*>(words[3]), reinterpret_cast<int*>(words[4]),
                 static_cast<int>(words[5]));
  return LOCKSTEP_REAL(syscall)(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
