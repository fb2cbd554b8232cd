// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

/// JSON in and out of a run's files, with errors that say where and what.
namespace lockstep::run {

using Json = nlohmann::ordered_json;  // in the order that a person reads

/// Throws Error "OPERATION: WHERE: ..." on anything but JSON.
Json parse_json(const char* operation, std::string_view text, const std::string& where);

/// Indented by `indent` spaces, on one line with -1. Bytes that are no UTF-8 are replaced.
std::string dump_json(const Json& json, int indent = 2);

/// JSON has no NaN and no infinity: they become null.
Json finite(double value);

/// Where there is a value.
template <class Value>
void put(Json& json, const char* key, const std::optional<Value>& value) {
  if (!value) return;
  if constexpr (std::is_same_v<Value, double>)
    json[key] = finite(*value);
  else
    json[key] = *value;
}

/// An object whose values are asked for by key. A value of the wrong kind is an Error; a key that is not there is none.
class JsonObject {
 public:
  JsonObject(const Json& json, const char* operation, std::string where);

  /// Null is NaN.
  std::optional<double> number(const char* key) const;
  std::optional<int64_t> integer(const char* key) const;
  std::optional<std::string> string(const char* key) const;
  /// A list of numbers, null being NaN; empty where it is not there.
  std::vector<double> numbers(const char* key) const;
  /// A list of texts; empty where it is not there.
  std::vector<std::string> strings(const char* key) const;
  /// take(JsonObject) for each of a list of objects; none where it is not there.
  template <class Take>
  void for_each(const char* key, Take take) const {
    const Json* list = array(key);
    for (size_t i = 0; list != nullptr && i < list->size(); ++i)
      take(JsonObject((*list)[i], operation_, text(where_, ": ", key, "[", i, "]")));
  }
  /// Null where it is not there.
  const Json* array(const char* key) const;
  const Json* object(const char* key) const;

  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(operation_, where_, ": ", parts...);
  }
  const std::string& where() const { return where_; }
  const char* operation() const { return operation_; }

 private:
  const Json* find(const char* key, const char* expected, bool (Json::*is)() const noexcept) const;

  const Json& json_;
  const char* operation_;
  std::string where_;
};

/// A whole number that an int holds.
int to_int(const JsonObject& object, const char* key, int64_t value);

}  // namespace lockstep::run
