// SPDX-License-Identifier: Apache-2.0
#include "data/formats/file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>

namespace lockstep::data {
namespace {

std::vector<fs::path> sorted_entries(const fs::path& folder, bool folders) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if ((folders ? entry.is_directory() : entry.is_regular_file()) &&
        !entry.path().filename().string().starts_with('.'))
      found.push_back(entry.path());
  std::ranges::sort(found, {}, [](const fs::path& path) { return path.filename().string(); });
  return found;
}

}  // namespace

InputFile::InputFile(const fs::path& path) : path_(path), file_(nullptr) {
  std::error_code ignored;
  require(!fs::is_directory(path, ignored), "open_dataset", path.string(), " is a folder, expected a file");
  errno = 0;
  file_ = gzopen(path.c_str(), "rb");
  require(file_ != nullptr, "open_dataset", path.string(), " can't be opened: ", std::strerror(errno),
          "; check that the file is there and may be read");
  gzbuffer(file_, 1 << 17);
}

InputFile::~InputFile() {
  gzclose_r(file_);
}

void InputFile::fail_text(int64_t offset, const std::string& message) const {
  const bool compressed = gzdirect(file_) == 0;
  const std::string place = compressed ? text(" (decompressed; about byte ", gzoffset(file_), " of the file)") : "";
  fail("open_dataset", path_.string(), ", offset ", offset, place, ": ", message);
}

int64_t InputFile::read_some(std::span<uint8_t> into) {
  int64_t done = 0;
  while (done < static_cast<int64_t>(into.size())) {
    const auto part = static_cast<unsigned>(std::min<int64_t>(into.size() - done, 1 << 30));
    const int got = gzread(file_, into.data() + done, part);
    if (got > 0) {
      done += got;
      offset_ += got;
    }
    int code = Z_OK;
    const char* reason = gzerror(file_, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
      fail_at(offset_, code == Z_BUF_ERROR ? "the compressed data end too early" : reason,
              ", expected a whole file; copy or download it again");
    if (got == 0) break;
  }
  return done;
}

void InputFile::read(std::span<uint8_t> into, const char* what) {
  const int64_t begin = offset_, got = read_some(into);
  if (got < static_cast<int64_t>(into.size()))
    fail_at(begin, "the file ends after ", got, " of the ", into.size(), " bytes of ", what,
            "; it is truncated, copy or download it again");
}

uint32_t InputFile::read_big_endian(const char* what) {
  std::array<uint8_t, 4> bytes{};
  read(bytes, what);
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void InputFile::expect_end() {
  uint8_t more = 0;
  const int64_t end = offset_;
  if (read_some({&more, 1}) != 0)
    fail_at(end, "there are more bytes, expected the end of the file; its header does not match its length");
}

fs::path find_file(const fs::path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::error_code ignored;
    if (fs::is_regular_file(folder / name, ignored)) return folder / name;
  }
  return {};
}

std::string name_of(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

void require_folder(const fs::path& folder) {
  std::error_code ignored;
  require(fs::is_directory(folder, ignored), "open_dataset", folder.string(), " is ",
          fs::exists(folder, ignored) ? "not a folder" : "not there", ", expected a folder");
}

std::string ending_of(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending;
}

std::vector<fs::path> sorted_folders(const fs::path& folder) {
  return sorted_entries(folder, true);
}

std::vector<fs::path> sorted_files(const fs::path& folder) {
  return sorted_entries(folder, false);
}

}  // namespace lockstep::data
