// SPDX-License-Identifier: Apache-2.0
#include "lockstep/pictures/read_image.h"

#include <string>

#include "lockstep/base/detail/file.h"
#include "lockstep/base/error.h"
#include "lockstep/pictures/jpeg.h"
#include "lockstep/pictures/png.h"

namespace lockstep::pictures {
namespace {

/// Grey becomes three equal channels, and alpha is left out.
Image to_rgb(Image image) {
  if (image.channels == 3) return image;
  Image rgb{image.width, image.height, 3};
  const size_t step = image.channels, pixels = image.pixels.size() / step, green = step == 4 ? 1 : 0;
  rgb.pixels.resize(3 * pixels);
  for (size_t i = 0; i < pixels; ++i)
    for (size_t c = 0; c < 3; ++c) rgb.pixels[3 * i + c] = image.pixels[step * i + c * green];
  return rgb;
}

}  // namespace

Image read_image(const std::filesystem::path& path) {
  const std::string bytes = read_file(path, "read_image");
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return to_rgb(decode_png(bytes, path.string()));
  if (bytes.starts_with("\xff\xd8\xff")) return decode_jpeg(bytes, path.string());
  fail("read_image", path.string(), ", offset 0: ", bytes.empty() ? "the file is empty" : "no PNG or JPEG signature",
       ", expected an image of one of these kinds");
}

}  // namespace lockstep::pictures
