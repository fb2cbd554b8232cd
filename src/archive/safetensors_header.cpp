// SPDX-License-Identifier: Apache-2.0
#include "archive/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "lockstep/archive/tensor_file.h"

namespace lockstep::archive {
namespace {

using HeaderJson = nlohmann::ordered_json;

/// Listens to a parser. The header is {"NAME": {"dtype": D, "shape": [...], "data_offsets": [begin, end]}, ...}, and
/// may have "__metadata__": {"KEY": "TEXT", ...}; so nothing lies deeper than three brackets.
class HeaderReader : public nlohmann::json_sax<HeaderJson> {
 public:
  explicit HeaderReader(const std::string& name) : name_(name) {}

  std::vector<TensorPlace> places;

  bool null() override { wrong("has null"); }
  bool boolean(bool) override { wrong("has true or false"); }
  bool number_integer(number_integer_t) override { wrong("has a number below 0"); }
  bool number_float(number_float_t, const string_t& number) override { wrong("has the number ", shortened(number)); }
  bool binary(binary_t&) override { wrong("has binary data"); }
  bool number_unsigned(number_unsigned_t number) override {
    if (depth_ != 3) wrong("has the number ", number, " outside of a shape and of data_offsets");
    numbers_.push_back(number);
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 2 && metadata_) return true;
    if (depth_ != 2 || field_ != "dtype") wrong("has the text '", shortened(value), "' where none belongs");
    const auto* found = std::ranges::find(kDtypeNames, std::string_view(value), &DtypeName::name);
    if (found == kDtypeNames.end()) wrong("has dtype '", shortened(value), "', which torch does not have");
    places.back().type = found->type;
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ >= 2) wrong("has an object inside of a tensor or of __metadata__");
    ++depth_;
    fields_.clear();
    return true;
  }
  bool end_object() override {
    if (depth_ == 2 && !metadata_ && fields_.size() != 3) wrong("lacks a dtype, a shape or data_offsets");
    --depth_;
    return true;
  }
  bool key(string_t& word) override {
    if (!(depth_ == 1 ? names_ : fields_).insert(word).second) wrong("has '", shortened(word), "' twice");
    if (depth_ == 1) {
      metadata_ = word == "__metadata__";
      if (!metadata_) places.push_back({.name = word});
    } else if (!metadata_) {
      if (word != "dtype" && word != "shape" && word != "data_offsets") wrong("has the field '", shortened(word), "'");
      field_ = word;
    }
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || metadata_ || field_ == "dtype") wrong("has a list where none belongs");
    ++depth_;
    numbers_.clear();
    return true;
  }
  bool end_array() override {
    --depth_;
    TensorPlace& place = places.back();
    if (field_ == "shape") {
      for (const uint64_t number : numbers_) {
        if (number > uint64_t{std::numeric_limits<int64_t>::max()}) wrong("has a size of ", number);
        place.sizes.push_back(static_cast<int64_t>(number));
      }
      return true;
    }
    if (numbers_.size() != 2) wrong("has ", numbers_.size(), " data_offsets");
    std::tie(place.begin, place.end) = std::pair(numbers_[0], numbers_[1]);
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception&) override {
    wrong("is no JSON at byte ", position);
  }

 private:
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    const bool in_tensor = depth_ >= 2 && !metadata_ && !places.empty();
    throw DamagedFile(text("read_tensor_file: the header of '", name_, "' ", parts...,
                           in_tensor ? text(" (tensor '", shortened(places.back().name), "')") : "",
                           ", expected that of a safetensors file"));
  }
  static std::string shortened(const std::string& word) { return word.size() > 80 ? word.substr(0, 77) + "..." : word; }

  const std::string& name_;
  int depth_ = 0;
  bool metadata_ = false;
  std::string field_;
  std::vector<uint64_t> numbers_;
  std::set<std::string> names_, fields_;
};

/// The bytes of a tensor, or none where 63 bits do not hold them. Sizes of 0 count as 1 on the way: torch's strides do.
std::optional<uint64_t> bytes_of(const TensorPlace& place) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(place.type));
  for (const int64_t size : place.sizes)
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(1, size), &bytes)) return std::nullopt;
  return std::ranges::count(place.sizes, 0) > 0 ? 0 : static_cast<uint64_t>(bytes);
}

}  // namespace

std::vector<TensorPlace> parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& name) {
  const auto check = [&](bool holds, const auto&... parts) {
    if (!holds) throw DamagedFile(text("read_tensor_file: '", name, "' ", parts...));
  };
  check(json.starts_with('{'), "has no JSON object as its header, expected a safetensors file");
  HeaderReader reader(name);
  HeaderJson::sax_parse(json.begin(), json.end(), &reader);
  auto& places = reader.places;
  std::ranges::sort(places, {}, [](const TensorPlace& place) { return std::tie(place.begin, place.end, place.name); });
  uint64_t at = 0;
  for (const TensorPlace& place : places) {
    check(place.begin == at, "has ", place.begin < at ? "bytes of two tensors" : "bytes of no tensor",
          " before tensor '", place.name, "', which begins at byte ", place.begin, " of the data, expected ", at);
    check(place.end >= place.begin && place.end <= data_bytes, "has tensor '", place.name, "' in bytes ", place.begin,
          " to ", place.end, " of the data, expected them in order and below its ", data_bytes, " bytes");
    const auto bytes = bytes_of(place);
    check(bytes == place.end - place.begin, "has ", place.end - place.begin, " bytes of tensor '", place.name,
          "', expected ", bytes ? text(*bytes) : "a size of less than 2^63", " by its shape and dtype");
    at = place.end;
  }
  check(at == data_bytes, "has ", data_bytes - at, " bytes of no tensor at its end, expected none");
  return std::move(places);
}

std::string safetensors_header(const std::vector<TensorPlace>& places, const std::string& name) {
  HeaderJson json = HeaderJson::object();
  json["__metadata__"] = {{"format", "pt"}};  // what the transformers package asks for
  for (const TensorPlace& place : places) {
    const auto* dtype = std::ranges::find(kDtypeNames, place.type, &DtypeName::type);
    json[place.name] = {{"dtype", dtype->name}, {"shape", place.sizes}, {"data_offsets", {place.begin, place.end}}};
  }
  std::string out;
  try {
    out = json.dump();
  } catch (const HeaderJson::exception&) {
    fail("write_tensor_file", "'", name, "' would have a tensor whose name is not UTF-8, expected UTF-8");
  }
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

}  // namespace lockstep::archive
