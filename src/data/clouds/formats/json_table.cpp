// SPDX-License-Identifier: Apache-2.0
#include "data/clouds/formats/json_table.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace lockstep::data {
namespace {

using Json = nlohmann::json;

/// Listens to a parser; the depth is 1 in the array and 2 in one of its objects.
class Listener : public nlohmann::json_sax<Json> {
 public:
  Listener(const fs::path& file, std::ifstream& in, const std::vector<std::string>& names,
           const std::function<void(std::span<const std::string>)>& row)
      : file_(file), in_(in), names_(names), row_(row), values_(names.size()), seen_(names.size()) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool string(string_t& text) override {
    if (depth_ == 2 && wanted_) {
      values_[*wanted_] = std::move(text);
      seen_[*wanted_] = true;
    }
    return value();
  }
  bool start_array(size_t) override {
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ == 0) wrong("an object, expected an array of objects");
    ++depth_;
    if (depth_ == 2) seen_.assign(names_.size(), false);
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ != 2) return true;
    const auto found = std::ranges::find(names_, name);
    wanted_ = found == names_.end() ? std::nullopt : std::optional(found - names_.begin());
    return true;
  }
  bool end_object() override {
    if (depth_-- != 2) return true;
    const auto missing = std::ranges::find(seen_, false);
    if (missing != seen_.end())
      wrong("an object has no text under '", names_[missing - seen_.begin()], "', expected one");
    row_(values_);
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception& error) override {
    const std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    fail("open_dataset", file_.string(), ", offset ", position - 1, ": ", what.substr(what.find("] ") + 2));
  }

 private:
  bool value() {
    if (depth_ < 2) wrong("a value, expected an array of objects");
    return true;
  }
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) {
    const auto offset = in_.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in);
    fail("open_dataset", file_.string(), ", offset ", static_cast<int64_t>(offset), ": ", parts...);
  }

  const fs::path& file_;
  std::ifstream& in_;
  const std::vector<std::string>& names_;
  const std::function<void(std::span<const std::string>)>& row_;
  std::vector<std::string> values_;
  std::vector<bool> seen_;
  std::optional<std::ptrdiff_t> wanted_;  // which of the names the value that comes has
  int depth_ = 0;
};

}  // namespace

void read_json_table(const fs::path& file, const std::vector<std::string>& names,
                     const std::function<void(std::span<const std::string> values)>& row) {
  std::ifstream in(file, std::ios::binary);
  require(in.good(), "open_dataset", file.string(), " can't be opened, expected a table of JSON");
  Listener listener(file, in, names, row);
  Json::sax_parse(in, &listener);
}

}  // namespace lockstep::data
