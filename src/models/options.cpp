// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <sstream>
#include <string_view>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/models/registry.h"

namespace lockstep::models {
namespace {

template <class Number>
bool parse(std::string_view word, Number& number) {
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
  return problem == std::errc() && end == word.data() + word.size();
}

}  // namespace

const std::string& Options::word(const std::string& name) const {
  const auto found = settings.find(name);
  require(found != settings.end(), "models", "there is no setting '", name, "', expected it among the network's");
  return found->second;
}

double Options::real(const std::string& name) const {
  double number = 0;
  require(parse(word(name), number), "models", "the setting ", name, " is '", word(name), "', expected a number");
  return number;
}

int64_t Options::integer(const std::string& name) const {
  int64_t number = 0;
  require(parse(word(name), number), "models", "the setting ", name, " is '", word(name), "', expected an integer");
  return number;
}

std::vector<int64_t> Options::integers(const std::string& name) const {
  std::vector<int64_t> numbers;
  std::istringstream words(word(name));
  for (std::string one; std::getline(words, one, ',');) {
    require(parse(one, numbers.emplace_back()), "models", "the setting ", name, " is '", word(name),
            "', expected integers with commas between them, such as 256,128");
  }
  return numbers;
}

}  // namespace lockstep::models
