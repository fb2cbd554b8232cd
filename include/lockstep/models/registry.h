// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/models/classifier.h"

/// Networks by name, so that `lockstep train MODEL` and a program of one's own make the same ones.
///
///     auto net = models::make("resnet18", {.input = {3, 32, 32}, .classes = 10, .settings = {{"width", "0.5"}}});
///
/// A network of one's own joins in one line, given a constructor that takes `const models::Options&`:
///
///     auto registry = models::builtin();
///     registry.add<MyNetImpl>("mynet", "three convolutions and a dense layer");
///     auto net = registry.make("mynet");
namespace lockstep::models {

/// What a network is made for, and what is special to it. All of it is text or integers: it can be written to a
/// configuration file and read back.
struct Options {
  /// One example's sizes: [channels, height, width] of an image, [channels] of a cloud's points.
  std::vector<int64_t> input = {1, 28, 28};
  /// Axes of a cloud's coordinates; 0: examples are no clouds.
  int64_t dimension = 0;
  int64_t classes = 10;
  /// How the weights begin: a name of init.h. "default": the network's own way.
  std::string init = "default";
  /// The network's own settings, by name: {"width", "0.5"}. Those left out have their default.
  std::map<std::string, std::string> settings{};

  /// A setting as a number, a word or a list ("256,128"). Throws Error, naming the setting, where it is not there or
  /// reads otherwise.
  const std::string& word(const std::string& name) const;
  double real(const std::string& name) const;
  int64_t integer(const std::string& name) const;
  std::vector<int64_t> integers(const std::string& name) const;
};

/// One setting that a network takes.
struct Setting {
  std::string name;
  /// Its value where none is given.
  std::string value;
  /// One line, for lists of models.
  std::string description;
};

/// What a network gives a class to.
enum class Labels {
  examples,  ///< each example
  clouds,    ///< each cloud of points: an example has the sizes [channels], and coordinates
  points,    ///< each point of such a cloud
};

/// One network.
struct Entry {
  std::string name;
  std::string description;  ///< one line
  std::vector<Setting> settings;
  /// Makes one, of options whose settings are complete. Its weights are drawn by libtorch's initialisers, so from the
  /// RandomScope of this thread where there is one (as in Team::run), else from the default generator.
  std::function<std::shared_ptr<Classifier>(const Options&)> make;
  Labels labels = Labels::examples;
};

/// Networks by name, in the order in which they were added. A value.
class Registry {
 public:
  /// Throws Error where the name is empty or taken, or there is nothing to make one with.
  void add(Entry entry);

  /// A network whose constructor takes `const Options&` and whose forward takes an Input.
  template <class Network>
  void add(std::string name, std::string description,
           std::vector<Setting> settings = {}) requires std::constructible_from<Network, const Options&> {
    add({std::move(name), std::move(description), std::move(settings),
         [](const Options& options) { return Classifier::of(std::make_shared<Network>(options)); }});
  }

  /// They live as long as the registry: `for (... : builtin().entries())` would outlive it, and does not compile.
  const std::vector<Entry>& entries() const& { return entries_; }
  const std::vector<Entry>& entries() const&& = delete;
  /// Throws Error that gives the nearest name.
  const Entry& find(const std::string& name) const&;
  const Entry& find(const std::string& name) const&& = delete;

  /// The network, its weights set as `options.init` says. Throws Error for an unknown name, setting or initialisation
  /// (with the nearest one), values that make no sense, and inputs that the network cannot take.
  std::shared_ptr<Classifier> make(const std::string& name, const Options& options = {}) const;
  /// The options that make() hands on: every setting of the network is there. Throws Error for what it does not know.
  Options complete(const std::string& name, const Options& options) const;

 private:
  std::vector<Entry> entries_;
};

/// The networks of this library: lenet, mlp, alexnet, vgg, resnet18, resnet34, resnet50, c4, d4, and of clouds
/// minkunet14a and its other variants, stackunet, which label points, minkresnet14 to minkresnet101 and minkfcnn, which
/// label clouds.
Registry builtin();

/// builtin().make(name, options).
std::shared_ptr<Classifier> make(const std::string& name, const Options& options = {});

}  // namespace lockstep::models
