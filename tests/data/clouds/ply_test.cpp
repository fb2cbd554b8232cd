// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/ply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/error.h"
#include "support/temporary_folder.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Ply parse(const std::string& bytes) {
  return parse_ply({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "test.ply");
}

/// A column of every type, and a list.
Ply everything(PlyFormat format) {
  PlyElement vertex{.name = "vertex", .rows = 3};
  vertex.columns = {{.name = "a", .type = PlyType::int8, .values = {-128, 0, 127}},
                    {.name = "b", .type = PlyType::uint8, .values = {0, 1, 255}},
                    {.name = "c", .type = PlyType::int16, .values = {-32768, 5, 32767}},
                    {.name = "d", .type = PlyType::uint16, .values = {0, 7, 65535}},
                    {.name = "e", .type = PlyType::int32, .values = {-2147483648.0, 1, 2147483647}},
                    {.name = "f", .type = PlyType::uint32, .values = {0, 2, 4294967295}},
                    {.name = "x", .type = PlyType::float32, .values = {static_cast<double>(0.1F), -2.5, 1e30F}},
                    {.name = "y", .type = PlyType::float64, .values = {0.1, -1e-300, 3}}};
  PlyElement face{.name = "face", .rows = 3};
  face.columns = {{.name = "vertex_indices",
                   .type = PlyType::int32,
                   .count_type = PlyType::uint8,
                   .values = {0, 1, 2, 2, 1, 0, 2},
                   .ends = {3, 3, 7}}};
  return {.format = format, .comments = {"made by a test"}, .elements = {vertex, face}};
}

TEST(Ply, ReadsWhatItWroteInEveryFormat) {
  for (const PlyFormat format : {PlyFormat::ascii, PlyFormat::little_endian, PlyFormat::big_endian}) {
    const Ply ply = everything(format);
    EXPECT_EQ(parse(to_bytes(ply)), ply);
  }
}

TEST(Ply, ReadsTextAsOthersWriteIt) {
  const Ply ply = parse(
      "ply\r\nformat ascii 1.0\r\n\t comment  by hand\r\r\nobj_info x\r\nelement vertex 2\r\nproperty float32 x\r\n"
      "property uint8 red\r\nelement face 1\r\nproperty list uchar int vertex_index\r\nend_header\r\n"
      "+1.5e0 7\r\n-2 255\r\n\r\n3 0 1 1\r\n");
  ASSERT_EQ(ply.elements.size(), 2);
  EXPECT_EQ(ply.find("vertex")->find("x")->values, (std::vector<double>{1.5, -2}));
  EXPECT_EQ(ply.find("vertex")->find("red")->values, (std::vector<double>{7, 255}));
  EXPECT_EQ(ply.find("face")->columns[0].values, (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(ply.comments[0], " by hand");
  EXPECT_EQ(ply.find("edge"), nullptr);
}

TEST(Ply, ReadsBytesInTheOrderThatTheHeaderNames) {
  const std::string header = "element vertex 1\nproperty short x\nproperty float y\nend_header\n";
  const Ply big = parse("ply\nformat binary_big_endian 1.0\n" + header + std::string("\x01\x02\x3F\x80\x00\x00", 6));
  const Ply little =
      parse("ply\nformat binary_little_endian 1.0\n" + header + std::string("\x01\x02\x00\x00\x80\x3F", 6));
  EXPECT_EQ(big.elements[0].find("x")->values[0], 258);
  EXPECT_EQ(little.elements[0].find("x")->values[0], 513);
  EXPECT_EQ(big.elements[0].find("y")->values[0], 1);
  EXPECT_EQ(little.elements[0].find("y")->values[0], 1);
}

TEST(Ply, SaysWhereAFileIsBroken) {
  const auto expect = [](const std::string& bytes, const std::string& message) {
    EXPECT_THAT([&] { parse(bytes); }, ThrowsMessage<Error>(HasSubstr(message))) << bytes;
  };
  const std::string head = "ply\nformat ascii 1.0\n", vertex = head + "element vertex 2\nproperty float x\n";
  expect("", "test.ply, offset 0: this is no PLY file");
  expect("solid cube\n", "this is no PLY file");
  expect("ply\nformat ascii 2.0\n", "test.ply, offset 4: expected 'format ascii 1.0'");
  expect("ply\nelement v 1\nproperty int x\nend_header\n1\n", "the header has no format");
  expect(head + "element vertex\n", "expected 'element NAME ROWS'");
  expect(head + "element vertex -4\n", "expected 'element NAME ROWS'");
  expect(head + "property int x\n", "stands before any element");
  expect(vertex + "property quad y\n", "'quad' is no type");
  expect(vertex + "property float x\n", "there are two properties 'x'");
  expect(vertex + "property list float int l\n", "expected integers");
  expect(vertex + "surprise\n", "'surprise' is unknown");
  expect(vertex, "the header ends without end_header");
  expect(vertex + "end_header\n1\n", "has 2 rows, and 2 bytes are left");
  expect(vertex + "end_header\n1\n    ", "the file ends before its last row");
  expect(vertex + "end_header\n1\nabc\n", "test.ply, offset 68: 'abc' is no number");
  expect(head + "element vertex 1\nproperty uchar x\nend_header\n256\n", "256 is no uchar");
  expect(head + "element vertex 99999999999999\nproperty float x\nend_header\n1\n", "rows, and 2 bytes are left");
  expect(head + "element vertex 5\nend_header\n1\n", "5 rows of nothing");
  expect(head + "element f 1\nproperty list int int l\nend_header\n2000000000 1\n", "a list of 'l' has 2e+09 values");
  expect(head + "element f 1\nproperty list int int l\nend_header\n-1 1\n", "a list of 'l' has -1 values");
}

/// Bytes flipped, cut out and repeated: every file is read or refused, and no header makes the reader take memory that
/// the file does not fill.
TEST(Ply, SurvivesAnyDamage) {
  std::mt19937_64 random(1);
  int refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = to_bytes(everything(static_cast<PlyFormat>(round % 3)));
    for (uint64_t change = random() % 4 + 1; change > 0; --change) {
      const size_t at = random() % bytes.size(), length = std::min<size_t>(random() % 20, bytes.size() - at);
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, length);
          break;
        case 2:
          bytes.insert(at, bytes.substr(at, length));
          break;
        default:
          bytes.insert(at, std::to_string(random()));
          break;
      }
      if (bytes.empty()) bytes = "p";
    }
    try {
      const Ply ply = parse(bytes);
      for (const PlyElement& element : ply.elements)
        for (const PlyColumn& column : element.columns) ASSERT_LE(column.values.size(), bytes.size());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
  EXPECT_LT(refused, 6000);
}

TEST(Ply, HoldsClouds) {
  Cloud cloud;
  cloud.points = {{1, 2, 3}, {-0.5F, 0, 9}};
  cloud.features = {0, 1, 0.2F, 51.0F / 255, 1, 1};
  cloud.labels = {4, -100};
  const test::TemporaryFolder folder;
  const std::string file = folder.file("cloud.ply");
  write_ply(file, ply_of(cloud));
  const Cloud back = cloud_of(read_ply(file), file);
  EXPECT_EQ(back.points, cloud.points);
  EXPECT_EQ(back.features, cloud.features);
  EXPECT_EQ(back.labels, cloud.labels);
  const Cloud grey = cloud_of(parse("ply\nformat ascii 1.0\nelement vertex 1\nproperty double x\nproperty double y\n"
                                    "property double z\nend_header\n1 2 3\n"),
                              "grey.ply");
  EXPECT_EQ(grey.features, (std::vector<float>{0.5F, 0.5F, 0.5F}));
  EXPECT_TRUE(grey.labels.empty());
}

TEST(Ply, CountsPointsThatLieFarAwayFromNearby) {
  const std::string header =
      "ply\nformat ascii 1.0\nelement vertex 2\nproperty double x\nproperty double y\nproperty float z\n"
      "property uchar diffuse_red\nproperty uchar diffuse_green\nproperty uchar diffuse_blue\nend_header\n";
  const Ply map = parse(header + "451000.25 5212345.5 7000 255 0 51\n451001.375 5212344.75 7001 0 0 0\n");
  const Cloud cloud = cloud_of(map, "map.ply");
  EXPECT_EQ(cloud.points, (std::vector<Point>{{0.25F, 1.5F, 7000}, {1.375F, 0.75F, 7001}}));
  EXPECT_EQ(cloud.features, (std::vector<float>{1, 0, 0.2F, 0, 0, 0}));
  EXPECT_TRUE(has_colours(map));
  const Ply near = parse(header + "4096 -4096 0 0 0 0\n4097 4 0 0 0 0\n");
  EXPECT_EQ(cloud_of(near, "near.ply").points, (std::vector<Point>{{4096, -4096, 0}, {4097, 4, 0}}));
  EXPECT_THAT([&] { cloud_of(parse(header + "1 1 1 0 0 0\n1 nan 1 0 0 0\n"), "holes.ply"); },
              ThrowsMessage<Error>(HasSubstr("holes.ply: vertex 1 has the y nan, expected a finite one")));
}

/// The colours of one or more vertices at 0, in columns of this type.
std::vector<float> colours_in(const std::string& type, const std::vector<std::string>& colours) {
  std::string file = text("ply\nformat ascii 1.0\nelement vertex ", colours.size(), "\n");
  for (const char* name : {"x", "y", "z"}) file += text("property float ", name, "\n");
  for (const char* name : {"red", "green", "blue"}) file += text("property ", type, " ", name, "\n");
  file += "end_header\n";
  for (const std::string& colour : colours) file += text("0 0 0 ", colour, "\n");
  return cloud_of(parse(file), "c.ply").features;
}

TEST(Ply, TakesColoursInTheUnitsThatFilesHave) {
  using Colours = std::vector<float>;
  EXPECT_EQ(colours_in("ushort", {"65535 0 13107", "0 0 0"}), (Colours{1, 0, 0.2F, 0, 0, 0}));
  EXPECT_EQ(colours_in("ushort", {"255 0 51"}), (Colours{1, 0, 0.2F}));
  EXPECT_EQ(colours_in("int", {"255 0 51"}), (Colours{1, 0, 0.2F}));
  EXPECT_EQ(colours_in("float", {"1 0 0.25"}), (Colours{1, 0, 0.25F}));
  EXPECT_EQ(colours_in("float", {"255 0 51", "1 0 0"}), (Colours{1, 0, 0.2F, 1.0F / 255, 0, 0}));
  const auto expect_error = [](const std::string& type, const std::string& colour, const std::string& range) {
    EXPECT_THAT([&] { colours_in(type, {colour}); },
                ThrowsMessage<Error>(HasSubstr("c.ply has colours " + range + ", expected ")))
        << type << " " << colour;
  };
  expect_error("float", "1.5 0 0", "from 0 to 1.5");
  expect_error("float", "256 0 0", "from 0 to 256");
  expect_error("double", "0 -0.5 1", "from -0.5 to 1");
  expect_error("float", "0 nan 1", "from nan to 1");
  expect_error("short", "-1 0 0", "from -1 to 0");
  expect_error("int", "65536 0 0", "from 0 to 65536");
}

TEST(Ply, RefusesLabelsThatAreNoWholeNumbers) {
  const auto labels_of = [](const std::string& label) {
    return cloud_of(parse("ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n"
                          "property float z\nproperty float label\nend_header\n0 0 0 " +
                          label + "\n"),
                    "l.ply")
        .labels;
  };
  EXPECT_EQ(labels_of("-100"), std::vector<int64_t>{-100});
  for (const std::string label : {"nan", "inf", "1.5", "1e+30"})
    EXPECT_THAT([&] { labels_of(label); }, ThrowsMessage<Error>(HasSubstr("l.ply: vertex 0 has the label " + label +
                                                                          ", expected a whole number")));
}

TEST(Ply, SetsAColumnWithoutTouchingTheOthers) {
  Ply ply = everything(PlyFormat::ascii);
  PlyElement& element = ply.elements[0];
  const size_t before = element.columns.size();
  const PlyColumn first{.name = element.columns[0].name, .type = PlyType::uint8, .values = {1, 2, 3}};
  const PlyColumn more{.name = "more", .values = {4, 5, 6}};
  element.set(first);
  element.set(more);
  ASSERT_EQ(element.columns.size(), before + 1);
  EXPECT_EQ(element.columns[0], first);
  EXPECT_EQ(element.columns.back(), more);
  EXPECT_EQ(ply.find(element.name), &element);
  EXPECT_FALSE(has_colours(ply));
}

TEST(Ply, SaysWhatAFileLacks) {
  EXPECT_THAT([] { cloud_of(Ply{}, "a.ply"); }, ThrowsMessage<Error>(HasSubstr("a.ply has no element vertex")));
  EXPECT_THAT([] { cloud_of(everything(PlyFormat::ascii), "b.ply"); },
              ThrowsMessage<Error>(HasSubstr("b.ply has vertices without x, y and z")));
  EXPECT_THAT([] { read_ply("/"); }, ThrowsMessage<Error>(HasSubstr("'/' is a folder, expected a file")));
  EXPECT_THAT([] { read_ply("/nowhere/c.ply"); }, ThrowsMessage<Error>(HasSubstr("/nowhere/c.ply")));
  EXPECT_THAT([] { write_ply("/nowhere/c.ply", Ply{}); }, ThrowsMessage<Error>(HasSubstr("can't be written")));
  Ply uneven = everything(PlyFormat::ascii);
  uneven.elements[0].columns[0].values.pop_back();
  EXPECT_THAT([&] { to_bytes(uneven); }, ThrowsMessage<Error>(HasSubstr("'a' has 2 rows, expected 3")));
  Ply large = everything(PlyFormat::ascii);
  large.elements[0].columns[0].values[0] = 300;
  EXPECT_THAT([&] { to_bytes(large); }, ThrowsMessage<Error>(HasSubstr("300 is out of the range of char")));
}

}  // namespace
}  // namespace lockstep::data
