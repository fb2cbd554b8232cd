// SPDX-License-Identifier: Apache-2.0
#include "data/clouds/clouds.h"
#include "lockstep/base/error.h"
#include "lockstep/data/cloud_files.h"

namespace lockstep::data {

std::vector<DatasetKind> cloud_kinds() {
  return {};
}

const char* note_on_kinds() {
  return "; data sets of point clouds were left out of this build (LOCKSTEP_CLOUDS=OFF)";
}

std::shared_ptr<const Dataset> first_clouds(const std::shared_ptr<const Dataset>& /*dataset*/,
                                            const DatasetInfo& /*info*/) {
  return nullptr;
}

std::unique_ptr<ShareReader> make_cloud_reader(const std::shared_ptr<const Dataset>& /*dataset*/,
                                               const Order& /*order*/, const LoaderOptions& /*options*/) {
  return nullptr;
}

std::string label_file_name(const std::string& cloud_file, const DatasetInfo& /*info*/) {
  fail("label_file_name", "'", cloud_file, "' is a point cloud", note_on_kinds());
}

}  // namespace lockstep::data
