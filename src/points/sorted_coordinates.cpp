// SPDX-License-Identifier: Apache-2.0
#include "lockstep/points/sorted_coordinates.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/points/detail/sorted_keys.h"

namespace lockstep::points {
namespace {

constexpr const char* kOperation = "SortedCoordinates";

/// Inference tensors don't count what is written to them.
int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version());
}

[[noreturn]] void fail_on_order(const int32_t* row, int64_t rows, int64_t columns) {
  int64_t number = 1;
  while (number < rows && std::lexicographical_compare(row, row + columns, row + columns, row + 2 * columns))
    row += columns, ++number;
  fail(kOperation, "row ", number, " does not come after row ", number - 1,
       ", expected rows in ascending order, all different");
}

}  // namespace

SortedCoordinates::SortedCoordinates(at::Tensor coordinates) : coordinates_(std::move(coordinates)) {
  require(coordinates_.defined() && coordinates_.dim() == 2 && coordinates_.scalar_type() == at::kInt &&
              coordinates_.is_cpu() && coordinates_.is_contiguous() && coordinates_.size(1) >= 2 &&
              coordinates_.size(1) <= 9 && coordinates_.size(0) < std::numeric_limits<int32_t>::max(),
          kOperation, "coordinates are ", coordinates_.defined() ? coordinates_.toString() : "undefined", " ",
          coordinates_.defined() ? text(coordinates_.sizes()) : "",
          ", expected contiguous Int [N, 1 + D] on cpu with 1 to 8 axes and fewer than 2^31 - 1 rows");
  const int64_t rows = coordinates_.size(0), columns = coordinates_.size(1);
  const auto* row = coordinates_.const_data_ptr<int32_t>();
  const auto box = std::make_shared<Box>(Box::around(row, rows, columns));
  require(box->empty() || box->low[0] >= 0, kOperation, "a batch index is ", box->low[0], ", expected 0 or more");
  std::optional<SortedKeys> keys = pack_ascending(KeyLayout(kOperation, *box), row, rows);
  if (!keys) fail_on_order(row, rows, columns);
  version_ = version_of(coordinates_);
  box_ = box;
  keys_ = std::make_shared<SortedKeys>(std::move(*keys));
}

const at::Tensor& SortedCoordinates::coordinates() const {
  require(defined(), kOperation, "there are no coordinates, expected some");
  require(version_of(coordinates_) == version_, kOperation,
          "the coordinates were written to since they were found to ascend, expected them unchanged");
  return coordinates_;
}

}  // namespace lockstep::points
