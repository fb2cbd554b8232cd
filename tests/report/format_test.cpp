// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <limits>

#include "report/draw/ticks.h"
#include "report/escape.h"

namespace lockstep::report {
namespace {

using testing::ElementsAre;
using testing::Le;
using testing::SizeIs;

TEST(Format, ShowsNumbersAsPeopleReadThem) {
  EXPECT_EQ(fixed(0.83527, 3), "0.835");
  EXPECT_EQ(fixed(-0.0001, 2), "0.00");
  EXPECT_EQ(fixed(std::nan(""), 2), "nan");
  EXPECT_EQ(fixed(-std::numeric_limits<double>::infinity(), 2), "-inf");
  EXPECT_EQ(compact(0.0125, 3), "0.0125");
  EXPECT_EQ(compact(1e-7, 3), "1e-7");
  EXPECT_EQ(compact(1.25e-12, 3), "1.25e-12");
  EXPECT_EQ(compact(12345678, 3), "1.23e7");
  EXPECT_EQ(compact(1e100, 2), "1e100");
  EXPECT_EQ(compact(1234.5, 3), "1234");  // digits before the point are never lost
  EXPECT_EQ(compact(0, 3), "0");
  EXPECT_EQ(compact(-2.50, 3), "-2.5");
}

TEST(Format, ShortensThousands) {
  EXPECT_EQ(short_number(985), "985");
  EXPECT_EQ(short_number(999.7), "1k");
  EXPECT_EQ(short_number(21400), "21.4k");
  EXPECT_EQ(short_number(999'600), "1M");
  EXPECT_EQ(short_number(-3.2e6), "-3.2M");
  EXPECT_EQ(short_number(7e9), "7G");
}

TEST(Format, GivesATimeTheUnitThatFits) {
  EXPECT_EQ(duration(38e-6), "38 us");
  EXPECT_EQ(duration(0.0124), "12.4 ms");
  EXPECT_EQ(duration(0.9999), "1 s");
  EXPECT_EQ(duration(3.214), "3.21 s");
  EXPECT_EQ(duration(245), "4:05");
  EXPECT_EQ(duration(0), "0 s");
  EXPECT_EQ(duration(-1), "?");
  EXPECT_EQ(clock(7.2), "0:07");
  EXPECT_EQ(clock(3599.6), "1:00:00");
  EXPECT_EQ(clock(7439), "2:03:59");
  EXPECT_EQ(clock(std::nan("")), "?");
}

TEST(Format, DoesNotFollowTheLocaleOfTheProcess) {
  const char* const locale = std::setlocale(LC_ALL, "de_DE.UTF-8");  // where it is installed
  EXPECT_EQ(fixed(1.5, 1), "1.5") << (locale == nullptr ? "C" : locale);
  std::setlocale(LC_ALL, "C");
}

TEST(Format, GroupsDigitsAndCountsColumns) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(-999), "-999");
  EXPECT_EQ(grouped(60000), "60\u202f000");
  EXPECT_EQ(grouped(-1234567), "-1\u202f234\u202f567");
  EXPECT_EQ(columns_of(grouped(1234567)), 9u);
}

TEST(Escape, LeavesNothingThatHtmlReads) {
  EXPECT_EQ(escape("<script>alert('x' & \"y\")</script>"),
            "&lt;script&gt;alert(&#39;x&#39; &amp; &quot;y&quot;)&lt;/script&gt;");
  EXPECT_EQ(escape("Größe 2\u202fµs 🙂\n\t"), "Größe 2\u202fµs 🙂\n\t");
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(escape(std::string("a\0b", 3)), "a" + bad + "b");
  for (const char* wrong : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\x1b"})
    EXPECT_EQ(escape(wrong).substr(0, 3), bad) << wrong;
}

TEST(Ticks, StandAtRoundNumbers) {
  const Ticks ticks = linear_ticks(0.12, 0.93, 5, true);
  EXPECT_THAT(ticks.labels, ElementsAre("0.0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_EQ(ticks.low, 0);
  EXPECT_DOUBLE_EQ(ticks.high, 1);
  EXPECT_THAT(linear_ticks(1, 10, 5, false).labels, ElementsAre("2", "4", "6", "8", "10"));
  EXPECT_THAT(linear_ticks(1, 3, 8, false, true).labels, ElementsAre("1", "2", "3"));
  EXPECT_THAT(linear_ticks(0, 60000, 4, false).labels, ElementsAre("0", "20k", "40k", "60k"));
  EXPECT_THAT(linear_ticks(0, 4e-5, 4, true).labels, ElementsAre("0", "1e-5", "2e-5", "3e-5", "4e-5"));
}

TEST(Ticks, OfALogarithmicAxisAreTensAndWhatFitsBetween) {
  EXPECT_THAT(log_ticks(0.01, 100, 5).labels, ElementsAre("0.01", "0.1", "1", "10", "100"));
  EXPECT_THAT(log_ticks(0.05, 0.4, 6).labels, ElementsAre("0.05", "0.1", "0.2"));
  EXPECT_THAT(log_ticks(1e-12, 1, 5).labels, ElementsAre("1e-12", "1e-9", "1e-6", "0.001", "1"));
}

TEST(Ticks, OfAnyRangeAreFewDistinctAndInOrder) {
  for (const double low : {-1e6, -3.7, 0., 1e-9, 0.3, 7., 12345.})
    for (const double width : {0., 1e-5, 0.013, 1., 17., 99999.})
      for (const int most : {2, 5, 9})
        for (const bool widen : {false, true}) {
          const Ticks ticks = linear_ticks(low, low + width, most, widen);
          const std::string where = testing::PrintToString(std::tuple(low, width, most, widen));
          EXPECT_THAT(ticks.at, SizeIs(Le(most + 2))) << where;
          EXPECT_LE(ticks.low, low) << where;
          EXPECT_GE(ticks.high, low + width) << where;
          EXPECT_LT(ticks.low, ticks.high) << where;
          for (size_t i = 0; i + 1 < ticks.at.size(); ++i) EXPECT_LT(ticks.at[i], ticks.at[i + 1]) << where;
          for (size_t i = 0; i + 1 < ticks.at.size(); ++i) EXPECT_NE(ticks.labels[i], ticks.labels[i + 1]) << where;
        }
}

}  // namespace
}  // namespace lockstep::report
