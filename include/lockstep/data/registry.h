// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.h"

/// Data sets by name, so that `lockstep train --data NAME:...` and a program of one's own open the same ones.
///
///     auto train = data::open_dataset("mnist:/data/mnist", data::Subset::train);
///
/// Another kind of data set joins with a name and a function:
///
///     auto registry = data::builtin();
///     registry.add({.name = "lists",
///                   .usage = "lists:FILE",
///                   .description = "pictures and classes, one a line of the file",
///                   .open = [](std::string_view file, data::Subset subset, const data::DatasetOptions& options)
///                   {...}});
///     auto train = registry.open("lists:pictures.txt", data::Subset::train);
namespace lockstep::data {

using DatasetPointer = std::shared_ptr<const Dataset>;

/// One kind of data set.
struct DatasetKind {
  std::string name;         ///< what stands before the colon: "rooms"
  std::string usage;        ///< "rooms[:SCENES[:METRES]]"; a name that ends here or at "[" may stand alone
  std::string description;  ///< one line
  bool clouds = false;      ///< examples are clouds of points

  /// Opens what stands behind the colon; "" for the name alone. Throws Error as open_dataset says.
  std::function<DatasetPointer(std::string_view rest, Subset subset, const DatasetOptions& options)> open;

  /// Whether this file or folder holds such a data set, so that its path alone names one. Null: it is not recognised.
  std::function<bool(const std::filesystem::path& path)> recognises = nullptr;
  /// What a folder holds that is recognised, for the message where none is: "IDX files (train-images-idx3-ubyte)".
  std::string contents{};
};

/// Kinds of data sets by name, in the order in which they were added. A value.
class DatasetRegistry {
 public:
  /// Throws Error where the name is empty or taken, the usage does not begin with it, or there is nothing to open with.
  void add(DatasetKind kind);

  /// They live as long as the registry.
  const std::vector<DatasetKind>& kinds() const& { return kinds_; }
  const std::vector<DatasetKind>& kinds() const&& = delete;

  /// The data set that a text names: NAME or NAME:... of one kind, or the path of a file or folder that one recognises.
  /// Throws Error that names the file, the offset, what was got, what was expected and what can be done, when it names
  /// nothing, or files are missing, truncated, corrupt, or have labels out of range.
  DatasetPointer open(std::string_view spec, Subset subset, const DatasetOptions& options = {}) const;

  /// Whether such a text names clouds of points; nothing is opened.
  bool names_clouds(std::string_view spec) const;

  /// "fashion-mnist[:FOLDER], mnist:FOLDER, ...", for help.
  std::string usages() const;

 private:
  const DatasetKind* find(std::string_view name) const;

  std::vector<DatasetKind> kinds_;
};

/// The kinds of this library; `lockstep train --help` lists them.
DatasetRegistry builtin();

}  // namespace lockstep::data
