// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/data/cloud.h"

/// Files of clouds that are not among a data set's scenes, and of what a network trained on these makes of them. The
/// data set itself need not be there.
namespace lockstep::data {

/// A cloud as the data set's own are, so that a network trained on them knows what it sees: the points of a PLY file;
/// after ModelNet, whose clouds are centred and scaled into the unit ball, of an OFF mesh too; after SemanticKITTI and
/// nuScenes of a scan, without labels. Throws Error for a file of another kind or whose points have other features.
Cloud read_cloud_file(const std::string& file, const DatasetInfo& info);

/// The name that a file of labels for such a cloud has by the data set's custom, without a folder: 000000.label for
/// velodyne/000000.bin after SemanticKITTI.
std::string label_file_name(const std::string& cloud_file, const DatasetInfo& info);

/// Such a file, as the data set's benchmark takes it, with a class for each point: after SemanticKITTI labels of 4
/// bytes; after nuScenes classes from 1 on, of a byte; else text, a number a line, after ScanNet ids of NYU40, and
/// after any other numbers of classes. Throws Error for what is no class of the data set.
std::string label_file(std::span<const int64_t> classes, const DatasetInfo& info);

}  // namespace lockstep::data
