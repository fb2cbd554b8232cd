// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/detail/atomic_file.h"
#include "support/error_of.h"
#include "support/full_disk.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using test::error_of;
using test::FullDisk;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ReadFile, GivesAllBytesWhateverTheirNumber) {
  const TemporaryFolder folder;
  for (const size_t size : {0, 1, 4095, 4096, 100000}) {
    std::string contents(size, 'x');
    for (size_t i = 0; i < size; ++i) contents[i] = static_cast<char>(i * 7);
    write_file(folder / "file", contents);
    EXPECT_EQ(read_file(folder / "file"), contents);
    EXPECT_EQ(read_bytes(folder / "file"), std::vector<uint8_t>(contents.begin(), contents.end()));
  }
}

TEST(ReadFile, ReadsPipesAndFilesThatHaveNoSize) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  const std::string contents(300000, 'p');
  std::thread writer([&] { write_file(folder / "pipe", contents); });
  EXPECT_EQ(read_file(folder / "pipe"), contents);
  writer.join();
  EXPECT_THAT(read_file("/proc/self/cmdline"), HasSubstr("base_test"));
}

TEST(ReadFile, NamesTheFileAndTheReason) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_of([&] { read_file(folder / "none"); }),
            text("read_file: '", folder.file("none"), "' can't be opened: No such file or directory"));
  EXPECT_EQ(error_of([&] { read_bytes(folder.path(), "open_dataset"); }),
            text("open_dataset: '", folder.path().string(), "' is a folder, expected a file"));
}

TEST(WriteFile, MakesAndReplacesAFileAndLeavesNothingElse) {
  const TemporaryFolder folder;
  for (const std::string contents : {"first", "", "the second is longer"}) {
    write_file(folder / "file", contents);
    EXPECT_EQ(read_file(folder / "file"), contents);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
  }
}

TEST(WriteFile, GivesThePermissionsThatTheUmaskLets) {
  const TemporaryFolder folder;
  const mode_t before = umask(0027);
  write_file(folder / "file", "");
  umask(before);
  EXPECT_EQ(fs::status(folder / "file").permissions(), static_cast<fs::perms>(0640));
}

TEST(WriteFile, KeepsTheOldContentsWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  write_file(folder / "file", "old");
  {
    const FullDisk disk(100);
    EXPECT_EQ(error_of([&] { write_file(folder / "file", std::string(200, 'x'), "save"); }),
              text("save: '", folder.file("file"), "' can't be written: File too large"));
    AtomicFile parts(folder / "parts");
    parts.write(std::string(60, 'x'));
    EXPECT_THAT(error_of([&] { parts.write(std::string(60, 'x')); }),
                EndsWith("parts' can't be written past 60 bytes: File too large"));
  }
  EXPECT_EQ(read_file(folder / "file"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(WriteFile, SaysWhereItCannotBeWritten) {
  const TemporaryFolder folder;
  for (const auto& call : {std::function<void(const fs::path&)>([](const fs::path& file) { write_file(file, ""); }),
                           std::function<void(const fs::path&)>([](const fs::path& file) { check_writable(file); })}) {
    EXPECT_THAT(error_of([&] { call(folder / "none/file"); }),
                AllOf(StartsWith("write_file: '"), EndsWith("none/file' can't be written: No such file or directory")));
    EXPECT_THAT(error_of([&] { call("/proc/file"); }), HasSubstr("'/proc/file' can't be written: "));
  }
  EXPECT_THAT(error_of([&] { write_file(folder.path(), ""); }), EndsWith("can't be written: Is a directory"));
  EXPECT_THAT(error_of([&] { check_writable(folder.path()); }), EndsWith("is a folder, expected a file"));
  EXPECT_FALSE(fs::exists(partial_name(folder.path())));
}

TEST(WriteFile, RefusesAFolderWithoutRights) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const TemporaryFolder folder;
  fs::create_directory(folder / "closed");
  fs::permissions(folder / "closed", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(error_of([&] { write_file(folder / "closed/file", ""); }), EndsWith("Permission denied"));
  fs::permissions(folder / "closed", fs::perms::owner_all);
}

TEST(CheckWritable, LeavesEverythingAsItIs) {
  const TemporaryFolder folder;
  check_writable(folder / "file");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  write_file(folder / "file", "old");
  check_writable(folder / "file");
  EXPECT_EQ(read_file(folder / "file"), "old");
}

TEST(AtomicFile, IsSeenOnlyOnceItIsCommitted) {
  const TemporaryFolder folder;
  {
    AtomicFile file(folder / "file");
    file.write("some");
    EXPECT_FALSE(fs::exists(folder / "file"));
    file.write(" more");
    file.commit();
    EXPECT_EQ(read_file(folder / "file"), "some more");
  }
  { AtomicFile(folder / "other").write("half"); }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(AtomicFile, KeepsTheOneBeforeUnderAnotherName) {
  const TemporaryFolder folder;
  for (const std::string contents : {"1", "2", "3"}) {
    AtomicFile file(folder / "last");
    file.write(contents);
    file.commit(folder / "previous");
  }
  EXPECT_EQ(read_file(folder / "last"), "3");
  EXPECT_EQ(read_file(folder / "previous"), "2");
}

TEST(AtomicFile, TakesThePlaceOfALinkAndWritesThroughNone) {
  const TemporaryFolder folder;
  write_file(folder / "mine", "untouched");
  fs::create_symlink(folder / "mine", folder / "file");
  fs::create_symlink(folder / "mine", partial_name(folder / "file"));
  write_file(folder / "file", "new");
  EXPECT_EQ(read_file(folder / "mine"), "untouched");
  EXPECT_FALSE(fs::is_symlink(folder / "file"));
  EXPECT_EQ(read_file(folder / "file"), "new");
}

TEST(AtomicFile, WritesToADeviceItself) {
  write_file("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(error_of([] { write_file("/dev/full", "much"); }),
            "write_file: '/dev/full' can't be written: No space left on device");
}

TEST(AtomicFile, ReplacesWhatAKilledWriterLeft) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(folder / "file");
    file.write("half");
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(read_file(partial_name(folder / "file")), "half");
  fs::permissions(partial_name(folder / "file"), fs::perms::owner_all);
  write_file(folder / "file", "w");
  EXPECT_EQ(read_file(folder / "file"), "w");
  EXPECT_EQ(fs::status(folder / "file").permissions() & fs::perms::owner_exec, fs::perms::none);
  EXPECT_FALSE(fs::exists(partial_name(folder / "file")));
}

bool is_of_one_letter(const std::string& contents) {
  return contents.size() == 20000 && std::ranges::count(contents, contents[0]) == 20000;
}

TEST(AtomicFile, IsWholeHoweverManyThreadsAndProcessesWriteIt) {
  const TemporaryFolder folder;
  const auto write_often = [&](char letter) {
    for (int round = 0; round < 20; ++round) {
      AtomicFile file(folder / "file", "test", AtomicFile::Sync::no);
      for (int part = 0; part < 4; ++part) file.write(std::string(5000, letter));
      file.commit();
      if (!is_of_one_letter(read_file(folder / "file"))) return false;
    }
    return true;
  };
  std::vector<pid_t> children;
  for (const char letter : {'a', 'b'}) {
    children.push_back(fork());
    if (children.back() == 0) _exit(write_often(letter) ? 0 : 1);
  }
  std::vector<std::thread> threads;
  for (const char letter : {'c', 'd'}) threads.emplace_back([&, letter] { EXPECT_TRUE(write_often(letter)); });
  for (std::thread& thread : threads) thread.join();
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace lockstep
