// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

/// What becomes of a system call on the files of one folder, in a program that file_calls.cpp is linked into.
namespace lockstep::crashes {

enum class Fault : uint8_t {
  none,
  killed_before,  // the process dies instead of the call
  killed_after,   // ... right after it
  io_error,       // EIO
  disk_full,      // ENOSPC, after half of what was to be written
  short_write,    // half of it is written, and nothing is wrong
  interrupted,    // EINTR
  lost_rename,    // a rename that a crash of the machine undoes: it had not reached the disk
};
const char* to_string(Fault fault);
inline constexpr Fault all_faults[] = {Fault::killed_before, Fault::killed_after, Fault::io_error,   Fault::disk_full,
                                       Fault::short_write,   Fault::interrupted,  Fault::lost_rename};

/// From here on, calls on files below this folder are counted, and the one of this number meets the fault; for good
/// where the disk is full. Call number 0 is the first.
void watch(const std::string& folder, int64_t number, Fault fault);
/// Ends watching.
void watch_no_more();
/// How many calls there were.
int64_t calls_seen();
/// What the call that met the fault was, as "write run/last.pt.partial"; empty where it did not come to that.
std::string call_that_met_it();

}  // namespace lockstep::crashes
