// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/detail/sha256.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string hash(const std::string& message) {
  Sha256 sha;
  sha.update(message.data(), message.size());
  return sha.hex();
}

// The standard's own examples.
TEST(Sha256, HashesTheStandardsExamples) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotCareHowTheBytesCome) {
  std::string message;
  for (int i = 0; i < 1000; ++i) message += static_cast<char>(i);
  for (const size_t part : {1, 3, 63, 64, 65, 500}) {
    Sha256 sha;
    for (size_t at = 0; at < message.size(); at += part)
      sha.update(message.data() + at, std::min(part, message.size() - at));
    EXPECT_EQ(sha.hex(), hash(message)) << "in parts of " << part;
  }
}

}  // namespace
}  // namespace lockstep
