// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "lockstep/pictures/image.h"

/// Pictures of point clouds.
namespace lockstep::report {

/// The colour of a class, different for the first twenty.
pictures::Rgb class_colour(int64_t label);

/// What of a cloud is drawn. A room without its upper quarter: so one can look into it.
enum class Shown { room, whole };

/// A cloud of points (x, y, and z upwards) seen from above, and beside it in perspective from above one corner. `side`
/// is the length of a point's mark in the unit of the points. [height, 2 * height, 3]; white where nothing is. Throws
/// Error where points and colours differ in number.
pictures::Image draw_cloud(std::span<const std::array<float, 3>> points, std::span<const pictures::Rgb> colours,
                           double side, int height = 480, Shown shown = Shown::room);

}  // namespace lockstep::report
