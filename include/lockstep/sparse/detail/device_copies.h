// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <typeindex>
#include <utility>

#include "lockstep/base/detail/guarded.h"

namespace lockstep::sparse {

/// What devices keep of a map that lives in the memory of the CPU, each made when first asked for. A map never changes,
/// so nothing here grows old; it goes with the map. Safe to use from several threads.
class DeviceCopies {
 public:
  /// The copy of type T on a device; `make` gives it as a shared_ptr<T> where there is none yet.
  template <class T, class Make>
  std::shared_ptr<const T> get(int device, const Make& make) const {
    const Lock lock(mutex_);
    std::shared_ptr<const void>& copy = copies_[{std::type_index(typeid(T)), device}];
    if (!copy) copy = std::shared_ptr<const T>(make());
    return std::static_pointer_cast<const T>(copy);
  }
  /// Keeps a copy that was there before its map.
  template <class T>
  void put(int device, std::shared_ptr<const T> copy) const {
    const Lock lock(mutex_);
    copies_[{std::type_index(typeid(T)), device}] = std::move(copy);
  }

 private:
  mutable Mutex mutex_;
  mutable std::map<std::pair<std::type_index, int>, std::shared_ptr<const void>> copies_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::sparse
