// SPDX-License-Identifier: Apache-2.0
// libjpeg leaves its functions with longjmp where a file is broken, so nothing with a destructor lives between setjmp
// and the end.
#include "lockstep/pictures/jpeg.h"

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>  // after <cstdio>, which it needs

#include <jerror.h>  // after <jpeglib.h>

#include "lockstep/base/error.h"

namespace lockstep::pictures {
namespace {

struct Decoder {
  jpeg_error_mgr errors;  // first: libjpeg hands out its address
  std::jmp_buf escape;
  jpeg_decompress_struct state;
  char message[JMSG_LENGTH_MAX];
  size_t bytes_left;
};

Decoder* decoder_of(j_common_ptr state) {
  return reinterpret_cast<Decoder*>(state->err);
}

void escape(j_common_ptr state) {
  Decoder* decoder = decoder_of(state);
  decoder->errors.format_message(state, decoder->message);
  decoder->bytes_left = decoder->state.src != nullptr ? decoder->state.src->bytes_in_buffer : 0;
  std::longjmp(decoder->escape, 1);
}

// libjpeg fills the rest of a truncated file with grey and warns: that is an error here. Bytes too many between its
// parts, which some cameras write, cost no pixel.
void escape_at_warning(j_common_ptr state, int level) {
  if (level < 0 && state->err->msg_code != JWRN_EXTRANEOUS_DATA) escape(state);
}

/// From inverted CMYK, [pixels, 4], to RGB, [pixels, 3], as Pillow's convert("RGB") rounds it.
void to_rgb(std::vector<uint8_t>& pixels) {
  const size_t count = pixels.size() / 4;
  for (size_t i = 0; i < count; ++i) {
    const int black = pixels[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int product = (255 - pixels[4 * i + c]) * black + 128;
      pixels[3 * i + c] = static_cast<uint8_t>(black - (((product >> 8) + product) >> 8));
    }
  }
  pixels.resize(3 * count);
}

/// Reads the header; false: see decoder.message.
bool begin(Decoder& decoder, const uint8_t* bytes, size_t size) {
  if (setjmp(decoder.escape) != 0) return false;
  jpeg_create_decompress(&decoder.state);
  jpeg_mem_src(&decoder.state, bytes, size);
  jpeg_read_header(&decoder.state, TRUE);
  const size_t blocks = size_t{(decoder.state.image_width + 7) / 8} * ((decoder.state.image_height + 7) / 8);
  if (!decoder.state.arith_code && blocks / 8 > size) {  // a bit for each of one component at least
    std::snprintf(decoder.message, sizeof decoder.message, "%u x %u pixels in %zu bytes", decoder.state.image_width,
                  decoder.state.image_height, size);
    return false;
  }
  decoder.state.out_color_space = decoder.state.num_components == 4 ? JCS_CMYK : JCS_RGB;
  decoder.state.dct_method = JDCT_ISLOW;  // exact: the same bytes with and without SIMD
  jpeg_start_decompress(&decoder.state);
  return true;
}

bool read_rows(Decoder& decoder, uint8_t* pixels) {
  if (setjmp(decoder.escape) != 0) return false;
  while (decoder.state.output_scanline < decoder.state.output_height) {
    JSAMPROW row = pixels + size_t{decoder.state.output_scanline} * decoder.state.output_width *
                                static_cast<size_t>(decoder.state.output_components);
    jpeg_read_scanlines(&decoder.state, &row, 1);
  }
  jpeg_finish_decompress(&decoder.state);
  return true;
}

}  // namespace

Image decode_jpeg(std::string_view bytes, const std::string& where) {
  Decoder decoder;
  std::memset(&decoder, 0, sizeof decoder);
  decoder.state.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = escape;
  decoder.errors.emit_message = escape_at_warning;
  Image image;
  bool good = begin(decoder, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (good) {
    image = {static_cast<int>(decoder.state.output_width), static_cast<int>(decoder.state.output_height), 3};
    image.pixels.resize(size_t{decoder.state.output_height} * decoder.state.output_width *
                        static_cast<size_t>(decoder.state.output_components));
    good = read_rows(decoder, image.pixels.data());
    if (decoder.state.output_components == 4) to_rgb(image.pixels);
  }
  jpeg_destroy_decompress(&decoder.state);
  if (!good)
    fail("decode_jpeg", where, ", offset ", bytes.size() - decoder.bytes_left, " of ", bytes.size(), ": libjpeg says '",
         decoder.message, "', expected a valid JPEG file; copy or download it again");
  return image;
}

}  // namespace lockstep::pictures
