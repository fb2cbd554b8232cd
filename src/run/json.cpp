// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/detail/json.h"

#include <cmath>
#include <limits>

namespace lockstep::run {
namespace {

// A value as it stands in the file, short enough for a message.
std::string shown(const Json& json) {
  std::string text = dump_json(json, -1);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

Json parse_json(const char* operation, std::string_view text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    // The library's own prefix says nothing to the person who reads this.
    const std::string what = error.what();
    const size_t colon = what.find("] ");
    fail(operation, where, ": ", colon == std::string::npos ? what : what.substr(colon + 2));
  }
}

std::string dump_json(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

JsonObject::JsonObject(const Json& json, const char* operation, std::string where)
    : json_(json), operation_(operation), where_(std::move(where)) {
  if (!json.is_object()) wrong("got ", shown(json), ", expected an object {...}");
}

const Json* JsonObject::find(const char* key, const char* expected, bool (Json::*is)() const noexcept) const {
  const auto at = json_.find(key);
  if (at == json_.end()) return nullptr;
  if (!((*at).*is)()) wrong("'", key, "' is ", shown(*at), ", expected ", expected);
  return &*at;
}

std::optional<double> JsonObject::number(const char* key) const {
  const auto at = json_.find(key);
  if (at != json_.end() && at->is_null()) return std::numeric_limits<double>::quiet_NaN();
  const Json* found = find(key, "a number", &Json::is_number);
  return found == nullptr ? std::nullopt : std::optional(found->get<double>());
}

std::optional<int64_t> JsonObject::integer(const char* key) const {
  const Json* found = find(key, "a whole number", &Json::is_number_integer);
  if (found == nullptr) return std::nullopt;
  if (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
    wrong("'", key, "' is ", shown(*found), ", expected a whole number below 2^63");
  return found->get<int64_t>();
}

std::optional<std::string> JsonObject::string(const char* key) const {
  const Json* found = find(key, "a text", &Json::is_string);
  return found == nullptr ? std::nullopt : std::optional(found->get<std::string>());
}

const Json* JsonObject::array(const char* key) const {
  return find(key, "a list [...]", &Json::is_array);
}

std::vector<double> JsonObject::numbers(const char* key) const {
  std::vector<double> out;
  const Json* items = array(key);
  if (items == nullptr) return out;
  for (const Json& item : *items) {
    if (!item.is_number() && !item.is_null()) wrong("'", key, "' has ", shown(item), ", expected numbers");
    out.push_back(item.is_null() ? std::numeric_limits<double>::quiet_NaN() : item.get<double>());
  }
  return out;
}

std::vector<std::string> JsonObject::strings(const char* key) const {
  std::vector<std::string> out;
  const Json* items = array(key);
  for (size_t i = 0; items != nullptr && i < items->size(); ++i) {
    if (!(*items)[i].is_string()) wrong(key, "[", i, "] is no text");
    out.push_back((*items)[i].get<std::string>());
  }
  return out;
}

const Json* JsonObject::object(const char* key) const {
  return find(key, "an object {...}", &Json::is_object);
}

int to_int(const JsonObject& object, const char* key, int64_t value) {
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
    object.wrong("'", key, "' is ", value, ", expected a number below 2^31");
  return static_cast<int>(value);
}

}  // namespace lockstep::run
