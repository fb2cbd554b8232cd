// SPDX-License-Identifier: Apache-2.0
// libFuzzer on PNG and JPEG files: any bytes are read or refused with an Error.
#include "fuzzing.h"
#include "lockstep/pictures/jpeg.h"
#include "lockstep/pictures/png.h"

namespace {

constexpr int kLargestSide = 256;  // a small file may say that it is an enormous picture

void check_size(const lockstep::pictures::Image& image) {
  lockstep::test::check(std::cmp_equal(image.pixels.size(), image.width * image.height * image.channels),
                        "that a picture has the pixels of its size");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  test::read_or_refuse([&] { check_size(pictures::decode_png(bytes, "fuzz.png", kLargestSide)); });
  test::read_or_refuse([&] { check_size(pictures::decode_jpeg(bytes, "fuzz.jpg")); });
  return 0;
}
