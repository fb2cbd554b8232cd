// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lockstep/archive/tensor_file.h"

namespace lockstep::archive {

/// What write_tensor_file puts into a file, piece by piece.
void write_archive(const std::function<void(std::string_view)>& write, const Value& value);

/// As read_tensor_file. In a file that write_archive has written tensors lie in the file's own pages: they take memory
/// where they are used, and the system may take it back. While they live another file may get its name, but it must not
/// be written to or cut short.
struct MappedFile {
  Value value;
  std::string checksums;  // of all that is in it; empty in files of others
};
MappedFile map_tensor_file(const std::string& path);

}  // namespace lockstep::archive
