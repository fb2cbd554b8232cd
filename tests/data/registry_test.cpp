// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/registry.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace lockstep::data {
namespace {

using test::error_of;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

DatasetKind zeros_kind() {
  return {.name = "zeros",
          .usage = "zeros[:COUNT]",
          .description = "nothing but zeros",
          .open =
              [](std::string_view rest, Subset subset, const DatasetOptions&) {
                const int64_t count = rest.empty() ? 3 : std::stoll(std::string(rest));
                return make_dataset(text("zeros of ", to_string(subset)), at::zeros({count, 2}),
                                    at::zeros({count}, at::kLong));
              },
          .recognises = [](const std::filesystem::path& path) { return path.extension() == ".zeros"; }};
}

TEST(DatasetRegistry, AProgramsOwnKindIsOpenedAsTheBuiltInOnesAre) {
  DatasetRegistry registry = builtin();
  registry.add(zeros_kind());
  EXPECT_EQ(registry.open("zeros:5", Subset::train)->size(), 5);
  EXPECT_EQ(registry.open("zeros", Subset::test)->info().name, "zeros of test");
  EXPECT_EQ(registry.open("synthetic:2:2:7", Subset::train)->size(), 7);
  EXPECT_THAT(registry.usages(), EndsWith(", zeros[:COUNT]"));
  EXPECT_THAT(builtin().usages(), Not(HasSubstr("zeros")));
}

TEST(DatasetRegistry, TheFirstKindThatRecognisesAPathOpensIt) {
  const test::TemporaryFolder folder;
  folder.write("4.zeros", {});
  DatasetKind named = zeros_kind();
  named.open = [](std::string_view path, Subset, const DatasetOptions&) {
    return make_dataset(std::string(path), at::zeros({1, 2}), at::zeros({1}, at::kLong));
  };
  DatasetRegistry registry;
  registry.add(named);
  EXPECT_EQ(registry.open(folder.file("4.zeros"), Subset::train)->info().name, folder.file("4.zeros"));
  EXPECT_THAT(error_of([&] { registry.open(folder.path().string(), Subset::train); }), HasSubstr("holds no data set"));
}

TEST(DatasetRegistry, AnUnknownNameListsAllAndSuggestsTheNearest) {
  DatasetRegistry registry = builtin();
  registry.add(zeros_kind());
  EXPECT_THAT(error_of([&] { registry.open("zeroes:4", Subset::train); }),
              AllOf(HasSubstr("got 'zeroes:4'"), HasSubstr("tensors:FILE.pt"), HasSubstr("did you mean 'zeros'?")));
  EXPECT_THAT(error_of([&] { registry.open("none.pt", Subset::train); }), HasSubstr("'none.pt', which is not there"));
  EXPECT_THAT(error_of([&] { registry.open("mnist", Subset::train); }), HasSubstr("mnist:FOLDER"));
  EXPECT_THAT(error_of([&] { DatasetRegistry().open("zeros", Subset::train); }), HasSubstr("got 'zeros'"));
}

TEST(DatasetRegistry, RefusesKindsThatCouldNotBeNamedOrOpened) {
  DatasetRegistry registry = builtin();
  const auto refused = [&](auto change) {
    DatasetKind kind = zeros_kind();
    change(kind);
    return error_of([&] { registry.add(kind); });
  };
  EXPECT_THAT(refused([](DatasetKind& kind) { kind.name = ""; }), HasSubstr("the name is ''"));
  EXPECT_THAT(refused([](DatasetKind& kind) { kind.name = "a:b"; }), HasSubstr("without ':'"));
  EXPECT_THAT(refused([](DatasetKind& kind) { kind.name = kind.usage = "rooms"; }), HasSubstr("'rooms' already"));
  EXPECT_THAT(refused([](DatasetKind& kind) { kind.usage = "FILE"; }), HasSubstr("begins with the name"));
  EXPECT_THAT(refused([](DatasetKind& kind) { kind.open = nullptr; }), HasSubstr("expected a function"));
}

TEST(DatasetRegistry, TellsCloudsApartWithoutOpeningThem) {
  DatasetRegistry registry = builtin();
  DatasetKind kind = zeros_kind();
  kind.clouds = true;
  registry.add(kind);
  EXPECT_TRUE(registry.names_clouds("zeros:9"));
  EXPECT_TRUE(registry.names_clouds("rooms"));
  EXPECT_FALSE(registry.names_clouds("zerosy"));
  EXPECT_FALSE(registry.names_clouds("mnist:rooms"));
}

TEST(Builtin, KindsHaveAUsageAndADescriptionEach) {
  const DatasetRegistry registry = builtin();
  std::set<std::string> names;
  for (const DatasetKind& kind : registry.kinds()) {
    EXPECT_TRUE(names.insert(kind.name).second);
    EXPECT_FALSE(kind.description.empty()) << kind.name;
    EXPECT_LT(kind.description.size(), 130u) << kind.name;
  }
  EXPECT_EQ(names.size(), 12u);
}

}  // namespace
}  // namespace lockstep::data
