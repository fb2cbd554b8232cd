// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::train {

/// What is predicted, by which network, and where.
struct PredictOptions {
  std::string path;                ///< a run's folder, a checkpoint or a file of weights
  std::vector<std::string> files;  ///< images, tensors in .pt files, or clouds
  std::string model{};             ///< the network's name, where the file holds weights alone
  std::vector<std::string> set{};  ///< the network's settings, after those of its file: "width=0.5"
  std::string data{};              ///< the data set that names the classes; empty: what it was trained on
  std::string devices{};           ///< they take a file each; empty: all cores, or a GPU
  int64_t top = 3;                 ///< how many classes of each example

  // Files that are written of a cloud; of several clouds, or where a folder is named, such files in there.
  std::string out{};     ///< a PLY file of points with labels, coloured by these
  std::string labels{};  ///< the labels alone, in the form that the data set's benchmark takes
  std::string png{};     ///< a picture in the colours of the classes
};

struct ClassProbability {
  std::string name;
  double probability = 0;
};

/// What a network makes of one example.
struct Prediction {
  std::string file{};                                      ///< "cat.png"; "inputs.pt[2]" of several in one file
  std::optional<int64_t> points{};                         ///< of a cloud
  std::vector<std::pair<std::string, int64_t>> classes{};  ///< how many points each has, where points have classes
  std::optional<double> accuracy{};                        ///< of points, where the file has their labels
  std::vector<ClassProbability> likeliest{};               ///< where the example as a whole has a class
};

/// Asks a trained network about each file, on all devices. `on_prediction` gets each as soon as it and those before it
/// are there, in the order of the files, from any thread but never from two at once. Throws Error for files that are
/// not what the network takes, before any is read where that can be seen.
std::vector<Prediction> predict(const PredictOptions& options,
                                const std::function<void(const Prediction&)>& on_prediction = {});

}  // namespace lockstep::train
