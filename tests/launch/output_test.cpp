// SPDX-License-Identifier: Apache-2.0
#include "launch/output.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(Lines, AreTheSameHoweverTheyWereCut) {
  const std::string text = "one\n\ntwo three\r\nfour\rfive\nsix";
  for (size_t cut = 1; cut <= text.size(); ++cut) {
    Lines lines("> ");
    std::string got;
    for (size_t at = 0; at < text.size(); at += cut) got += lines.feed(std::string_view(text).substr(at, cut));
    EXPECT_EQ(got, "> one\n> \n> two three\n> five\n") << cut;
    EXPECT_EQ(lines.finish(), "> six\n") << cut;
    EXPECT_EQ(lines.finish(), "");
  }
}

TEST(Lines, ThatNeverEndAreCut) {
  Lines lines("> ");
  const std::string line = "> " + std::string(65536, 'x') + "\n";
  EXPECT_EQ(lines.feed(std::string(150'000, 'x')), line + line);
  EXPECT_EQ(lines.finish(), "> " + std::string(150'000 - 2 * 65536, 'x') + "\n");
}

}  // namespace
}  // namespace lockstep::launch
