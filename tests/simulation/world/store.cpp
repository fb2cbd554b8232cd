// SPDX-License-Identifier: Apache-2.0
#include "simulation/world/store.h"

#include <stdexcept>

namespace lockstep::simulation {

class StoreConnection : public c10d::Store {
 public:
  using Bytes = std::vector<uint8_t>;
  StoreConnection(simulation::Store& store, int process) : store_(store), process_(process) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return store_.connect(process_); }
  void set(const std::string& key, const Bytes& value) override {
    travel();
    put(key, value);
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    travel();
    const auto found = store_.values_.find(key);
    if (found == store_.values_.end() ? expected.empty() : found->second == expected) put(key, desired);
    return store_.values_.contains(key) ? store_.values_[key] : expected;
  }
  Bytes get(const std::string& key) override {
    wait({key});
    return store_.values_[key];
  }
  int64_t add(const std::string& key, int64_t value) override {
    travel();
    const auto found = store_.values_.find(key);
    const int64_t sum =
        value +
        (found == store_.values_.end() ? 0 : std::stoll(std::string(found->second.begin(), found->second.end())));
    const std::string text = std::to_string(sum);
    put(key, Bytes(text.begin(), text.end()));
    return sum;
  }
  bool deleteKey(const std::string& key) override {
    travel();
    return store_.values_.erase(key) > 0;
  }
  bool check(const std::vector<std::string>& keys) override {
    travel();
    return has(keys);
  }
  int64_t getNumKeys() override { return static_cast<int64_t>(store_.values_.size()); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    travel();
    const Time until = store_.scheduler_.now() + timeout.count() * kMillisecond;
    while (!has(keys)) {
      const bool woken = store_.scheduler_.block(&store_, "a key of the store", until);
      check_connected();
      if (!woken) throw std::runtime_error("the store has no such key in time");
    }
  }

 private:
  void check_connected() const {
    if (store_.disconnected_.contains(process_)) throw std::runtime_error("the store is gone");
  }
  void travel() const {
    check_connected();
    store_.scheduler_.sleep(store_.scheduler_.draws().between(20, 400) * kMicrosecond);
    check_connected();
  }
  bool has(const std::vector<std::string>& keys) const {
    for (const auto& key : keys)
      if (!store_.values_.contains(key)) return false;
    return true;
  }
  void put(const std::string& key, const Bytes& value) const {
    store_.values_[key] = value;
    store_.scheduler_.wake(&store_);
  }

  simulation::Store& store_;
  const int process_;
};

c10::intrusive_ptr<c10d::Store> Store::connect(int process) {
  return c10::make_intrusive<StoreConnection>(*this, process);
}

}  // namespace lockstep::simulation
