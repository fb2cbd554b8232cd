# SPDX-License-Identifier: Apache-2.0
# What all tests have in common: how long they may take, and what sanitizers are told.
set(lockstep_patience 1) # how many times as long as usual a test may take
if(LOCKSTEP_SANITIZE) # everything is slower there, waiting threads on a full machine most of all
  set(lockstep_patience 5)
endif()
set(lockstep_sanitizer_options
    "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp:halt_on_error=1"
    "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1" "ASAN_OPTIONS=detect_leaks=0")
if(LOCKSTEP_SANITIZE MATCHES "thread")
  # ThreadSanitizer does not see the fork and join of libgomp, on which libtorch's own loops stand; ours tell it.
  list(APPEND lockstep_sanitizer_options "OMP_NUM_THREADS=1")
endif()
