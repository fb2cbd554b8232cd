// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

/// The C library's own functions, which interposed.cpp hides.
namespace lockstep::simulation::real {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument);
int pthread_join(pthread_t thread, void** result);
long syscall(long number, const void* a, long b, long c, const void* d, const void* e, long f);

}  // namespace lockstep::simulation::real
