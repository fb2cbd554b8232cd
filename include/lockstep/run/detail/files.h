// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::run {

/// The whole file. Throws Error when it can't be read.
std::string read_file(const std::filesystem::path& file);

/// Replaces a file, or makes it, so that a reader or a crash at any moment finds the old contents or the new ones,
/// whole: written aside, synced, renamed. Throws Error when that fails (a full disk, no such folder); the old file
/// stays then.
void write_file_atomically(const std::filesystem::path& file, std::string_view contents);

/// Throws the Error that write_file_atomically would where no file can be made there: before work whose results it is
/// to hold.
void check_writable(const std::filesystem::path& file);

}  // namespace lockstep::run
