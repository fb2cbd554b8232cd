// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/transforms.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <utility>

#include "lockstep/base/detail/digits.h"
#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr const char* kKnown =
    "crop:PIXELS, flip[:PROBABILITY], shift:PIXELS, erase[:PROBABILITY], normalize[:MEAN:...:DEVIATION:...] or, of "
    "clouds, flip[:PROBABILITY], turn[:DEGREES], scale:PART, move:METRES, jitter:METRES, drop:PART, "
    "chromatic[:AMOUNT], elastic:CELL:METRES, window:METRES, mix[:PROBABILITY]";

void check_probability(const char* name, double probability) {
  require(probability >= 0 && probability <= 1, "Transforms", name, " has the probability ", probability,
          ", expected one in [0, 1]");
}

void check_pixels(const char* name, int64_t pixels) {
  require(0 <= pixels && pixels <= 1 << 14, "Transforms", name, " has ", pixels, " pixels, expected 0 to 16384");
}

void check_range(const char* name, double value, double most) {
  require(value >= 0 && value <= most, "Transforms", name, " has ", value, ", expected 0 to ", most);
}

struct Check {
  void operator()(const RandomCrop& step) const { check_pixels("crop", step.padding); }
  void operator()(const RandomFlip& step) const { check_probability("flip", step.probability); }
  void operator()(const RandomShift& step) const { check_pixels("shift", step.pixels); }
  void operator()(const RandomErase& step) const { check_probability("erase", step.probability); }
  void operator()(const Normalize& step) const {
    const auto& [mean, deviation] = step.figures;
    require(mean.size() == deviation.size(), "Transforms", "normalize has ", mean.size(), " means and ",
            deviation.size(), " deviations, expected as many of both");
    for (size_t c = 0; c < mean.size(); ++c)
      require(std::isfinite(mean[c]) && std::isfinite(deviation[c]) && deviation[c] > 0, "Transforms",
              "normalize has the mean ", mean[c], " and the deviation ", deviation[c],
              ", expected finite numbers, the second positive");
  }
  void operator()(const Custom& step) const {
    require(step.apply != nullptr, "Transforms", "the transform '", step.name, "' has no function");
  }
  void operator()(const RandomTurn& step) const { check_range("turn", step.degrees, 180); }
  void operator()(const RandomScale& step) const { check_range("scale", step.part, 0.9); }
  void operator()(const RandomMove& step) const { check_range("move", step.metres, 1e4); }
  void operator()(const RandomJitter& step) const { check_range("jitter", step.metres, 1e2); }
  void operator()(const RandomDrop& step) const {
    require(step.part >= 0 && step.part < 1, "Transforms", "drop has the part ", step.part,
            ", expected one in [0, 1): some points must stay");
  }
  void operator()(const Chromatic& step) const { check_range("chromatic", step.amount, 1); }
  void operator()(const Elastic& step) const {
    check_range("elastic", step.metres, 1e2);
    require(step.cell > 0 && std::isfinite(step.cell), "Transforms", "elastic has cells of ", step.cell,
            " m, expected them above 0");
  }
  void operator()(const RandomWindow& step) const {
    require(step.metres > 0 && std::isfinite(step.metres), "Transforms", "window has a side of ", step.metres,
            " m, expected it above 0");
  }
  void operator()(const RandomMix& step) const { check_probability("mix", step.probability); }
};

struct Write {
  std::string operator()(const RandomCrop& step) const { return text("crop:", step.padding); }
  std::string operator()(const RandomFlip& step) const { return text("flip:", digits_of(step.probability)); }
  std::string operator()(const RandomShift& step) const { return text("shift:", step.pixels); }
  std::string operator()(const RandomErase& step) const { return text("erase:", digits_of(step.probability)); }
  std::string operator()(const Normalize& step) const {
    std::string written = "normalize";
    for (const float mean : step.figures.mean) written.append(":").append(digits_of(mean));
    for (const float deviation : step.figures.deviation) written.append(":").append(digits_of(deviation));
    return written;
  }
  std::string operator()(const Custom& step) const { return step.name; }
  std::string operator()(const RandomTurn& step) const { return text("turn:", digits_of(step.degrees)); }
  std::string operator()(const RandomScale& step) const { return text("scale:", digits_of(step.part)); }
  std::string operator()(const RandomMove& step) const { return text("move:", digits_of(step.metres)); }
  std::string operator()(const RandomJitter& step) const { return text("jitter:", digits_of(step.metres)); }
  std::string operator()(const RandomDrop& step) const { return text("drop:", digits_of(step.part)); }
  std::string operator()(const Chromatic& step) const { return text("chromatic:", digits_of(step.amount)); }
  std::string operator()(const Elastic& step) const {
    return text("elastic:", digits_of(step.cell), ":", digits_of(step.metres));
  }
  std::string operator()(const RandomWindow& step) const { return text("window:", digits_of(step.metres)); }
  std::string operator()(const RandomMix& step) const { return text("mix:", digits_of(step.probability)); }
};

std::vector<std::string> split_at(std::string_view whole, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream{std::string(whole)};
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

template <class Number>
Number number_in(const std::string& word, const std::string& step) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  require(error == std::errc() && end == word.data() + word.size(), "Transforms::parse", "got '", word, "' in '", step,
          "', expected a number");
  return value;
}

Normalize parse_normalize(const std::vector<std::string>& words, const std::string& step) {
  require(words.size() % 2 == 1, "Transforms::parse", "got ", words.size() - 1, " numbers in '", step,
          "', expected as many means as deviations");
  Normalize normalize;
  const size_t channels = words.size() / 2;
  for (size_t i = 0; i < 2 * channels; ++i)
    (i < channels ? normalize.figures.mean : normalize.figures.deviation)
        .push_back(number_in<float>(words[1 + i], step));
  return normalize;
}

Transform parse_step(const std::string& step) {
  const auto words = split_at(step, ':');
  const std::string name = words.empty() ? "" : words[0];
  if (name == "normalize") return parse_normalize(words, step);
  const bool has_value = words.size() == 2;
  if (name == "elastic" && words.size() == 3)
    return Elastic{number_in<double>(words[1], step), number_in<double>(words[2], step)};
  if (words.size() <= 2) {
    if (name == "turn") return has_value ? RandomTurn{number_in<double>(words[1], step)} : RandomTurn{};
    if (name == "chromatic") return has_value ? Chromatic{number_in<double>(words[1], step)} : Chromatic{};
    if (name == "scale" && has_value) return RandomScale{number_in<double>(words[1], step)};
    if (name == "move" && has_value) return RandomMove{number_in<double>(words[1], step)};
    if (name == "jitter" && has_value) return RandomJitter{number_in<double>(words[1], step)};
    if (name == "drop" && has_value) return RandomDrop{number_in<double>(words[1], step)};
    if (name == "window" && has_value) return RandomWindow{number_in<double>(words[1], step)};
    if (name == "mix") return has_value ? RandomMix{number_in<double>(words[1], step)} : RandomMix{};
    if (name == "crop" && has_value) return RandomCrop{number_in<int64_t>(words[1], step)};
    if (name == "shift" && has_value) return RandomShift{number_in<int64_t>(words[1], step)};
    if (name == "flip") return has_value ? RandomFlip{number_in<double>(words[1], step)} : RandomFlip{};
    if (name == "erase") return has_value ? RandomErase{number_in<double>(words[1], step)} : RandomErase{};
  }
  fail("Transforms::parse", "got '", step, "', expected ", kKnown, ", separated by commas");
}

}  // namespace

Transforms::Transforms(std::vector<Transform> list) : list_(std::move(list)) {
  for (const Transform& step : list_) std::visit(Check{}, step);
  const auto check_once = [&]<class Step>(const Step& /*of this kind*/, const char* name) {
    const auto is_it = [](const Transform& step) { return std::holds_alternative<Step>(step); };
    require(std::ranges::count_if(list_, is_it) <= 1, "Transforms", "got more than one ", name, " in '", to_string(),
            "', expected one");
  };
  check_once(Normalize{}, "normalize");
  check_once(RandomMix{}, "mix");
}

Transforms Transforms::parse(std::string_view text) {
  std::vector<Transform> list;
  if (text != "none")
    for (const std::string& step : split_at(text, ',')) list.push_back(parse_step(step));
  return {std::move(list)};
}

std::string Transforms::to_string() const {
  std::string written;
  for (const Transform& step : list_) written.append(written.empty() ? "" : ",").append(std::visit(Write{}, step));
  return written;
}

Transforms Transforms::deterministic() const {
  std::vector<Transform> kept;
  std::ranges::copy_if(list_, std::back_inserter(kept),
                       [](const Transform& step) { return std::holds_alternative<Normalize>(step); });
  return {std::move(kept)};
}

Transforms Transforms::with(const Normalization& figures) const {
  std::vector<Transform> list = list_;
  for (Transform& step : list)
    if (auto* normalize = std::get_if<Normalize>(&step); normalize != nullptr && normalize->figures.mean.empty())
      normalize->figures = figures;
  return {std::move(list)};
}

}  // namespace lockstep::data
