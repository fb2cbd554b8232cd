// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "data/share_reader.h"
#include "lockstep/data/registry.h"

/// What the rest of this layer asks of clouds. A build without clouds (LOCKSTEP_CLOUDS=OFF) has no_clouds.cpp in place
/// of all other sources of this folder.
namespace lockstep::data {

/// The data sets of clouds, for builtin().
std::vector<DatasetKind> cloud_kinds();

/// What an error on an unknown data set adds: that those of clouds were left out of this build, or nothing.
const char* note_on_kinds();

/// The first info.size of these clouds; null where the data set has other examples.
std::shared_ptr<const Dataset> first_clouds(const std::shared_ptr<const Dataset>& dataset, const DatasetInfo& info);

/// A reader of these clouds; null where the data set has other examples.
std::unique_ptr<ShareReader> make_cloud_reader(const std::shared_ptr<const Dataset>& dataset, const Order& order,
                                               const LoaderOptions& options);

}  // namespace lockstep::data
