// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/base64.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "support/error_of.h"

namespace lockstep {
namespace {

using test::error_of;
using ::testing::HasSubstr;

TEST(Base64, AgreesWithTheStandardsExamples) {
  const std::pair<const char*, const char*> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : cases) {
    EXPECT_EQ(base64(plain), coded);
    EXPECT_EQ(from_base64(coded, "test"), plain);
  }
}

TEST(Base64, CarriesEveryByteAtEveryLength) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(from_base64(base64(bytes), "test"), bytes);
    bytes += static_cast<char>(i * 151);
  }
}

TEST(Base64, RefusesAnythingElse) {
  for (const char* wrong : {"Zg", "Z===", "Zg=a", "Z!==", "Zm9v\n"})
    EXPECT_THAT(error_of([&] { from_base64(wrong, "a.json"); }), HasSubstr("from_base64: a.json: ")) << wrong;
}

}  // namespace
}  // namespace lockstep
