// SPDX-License-Identifier: Apache-2.0
// What a network gets right and wrong, and what it was trained with.
#include <algorithm>
#include <cmath>

#include "lockstep/base/detail/base64.h"
#include "lockstep/base/error.h"
#include "lockstep/pictures/png.h"
#include "lockstep/report/format.h"
#include "report/escape.h"
#include "report/page/page.h"

namespace lockstep::report {
namespace {

constexpr size_t largest_matrix = 30;  // classes; a larger one is told in words
constexpr size_t most_confusions = 6;
constexpr size_t most_samples = 60;

struct Confused {
  size_t truth, prediction;
  int64_t count;
  double share;  // of the examples of that class
};

int64_t row_sum(const std::vector<int64_t>& row) {
  int64_t sum = 0;
  for (const int64_t count : row) sum += count;
  return sum;
}

std::vector<Confused> worst_confusions(const run::Confusion& confusion) {
  std::vector<Confused> all;
  for (size_t truth = 0; truth < confusion.classes.size(); ++truth) {
    const auto& row = confusion.counts[truth];
    const auto sum = static_cast<double>(row_sum(row));
    for (size_t prediction = 0; prediction < row.size(); ++prediction)
      if (prediction != truth && row[prediction] > 0)
        all.push_back({truth, prediction, row[prediction], static_cast<double>(row[prediction]) / sum});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  return all;
}

std::string confused_list(const run::Confusion& confusion, const std::vector<Confused>& worst) {
  if (worst.empty()) return "<p>Every example is in its class.</p>\n";
  std::string items;
  for (size_t i = 0; i < std::min(worst.size(), most_confusions); ++i) {
    const auto& [truth, prediction, count, share] = worst[i];
    items += text("<li><b>", escape(confusion.classes[truth]), "</b> taken for <b>",
                  escape(confusion.classes[prediction]), "</b>: ", count, " of ", row_sum(confusion.counts[truth]),
                  " <span class=\"muted\">(", fixed(100 * share, 1), " %)</span></li>\n");
  }
  return "<ol class=\"confused\">\n" + items + "</ol>\n";
}

// Right ones by their share of the class; wrong ones against the worst, as they would be pale otherwise.
std::string matrix_cell(const run::Confusion& confusion, size_t truth, size_t prediction, double worst) {
  const int64_t count = confusion.counts[truth][prediction];
  const double share =
      count == 0 ? 0 : static_cast<double>(count) / static_cast<double>(row_sum(confusion.counts[truth]));
  const bool hit = truth == prediction;
  const double shade = hit ? 0.1 + 0.85 * share : share == 0 ? 0 : 0.12 + 0.75 * share / worst;
  return text("<td class=\"", hit ? "hit" : "miss", shade > 0.55 ? " deep" : "", "\" style=\"--v:", fixed(shade, 2),
              "\" title=\"", escape(confusion.classes[truth]), " taken for ", escape(confusion.classes[prediction]),
              ": ", fixed(100 * share, 1), " %\">", count == 0 ? "" : text(count), "</td>");
}

std::string matrix(const run::Confusion& confusion, double worst) {
  std::string heading = "<td></td>", rows;
  for (const auto& name : confusion.classes) heading += text("<th scope=\"col\"><span>", escape(name), "</span></th>");
  for (size_t truth = 0; truth < confusion.classes.size(); ++truth) {
    const std::string name = escape(confusion.classes[truth]);
    rows += text("<tr><th scope=\"row\" title=\"", name, "\">", name, "</th>");
    for (size_t prediction = 0; prediction < confusion.classes.size(); ++prediction)
      rows += matrix_cell(confusion, truth, prediction, worst);
    rows += "</tr>\n";
  }
  return text("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Confusion matrix\">\n",
              "<table class=\"matrix\">\n<thead><tr>", heading, "</tr></thead>\n<tbody>\n", rows,
              "</tbody>\n</table>\n</div>\n");
}

/// Of each class the share of it that is found, or, of a segmentation, the intersection over the union.
std::string class_table(const run::RunData& run, const run::Confusion& confusion) {
  const auto segments = [](const run::Metrics& line) {
    return line.subset == data::Subset::test && !line.class_iou.empty();
  };
  const auto last = std::find_if(run.metrics.rbegin(), run.metrics.rend(), segments);
  const bool by_union = last != run.metrics.rend() && last->class_iou.size() == confusion.classes.size();
  std::string rows;
  for (size_t c = 0; c < confusion.classes.size(); ++c) {
    const auto sum = static_cast<double>(row_sum(confusion.counts[c]));
    const double share = by_union ? last->class_iou[c] : static_cast<double>(confusion.counts[c][c]) / sum;
    rows += share_row(escape(confusion.classes[c]), std::isnan(share) ? 0 : share, 0,
                      std::isnan(share) ? "-" : fixed(100 * share, 1) + " %");
  }
  return text("<div class=\"card\"><h3>", by_union ? "Intersection over union" : "Found",
              ", by class</h3>\n<table class=\"shares\">", rows, "</table></div>\n");
}

std::string class_name(const run::Samples& samples, int number) {
  return samples.classes.empty() ? text("class ", number) : samples.classes[number];
}

std::string sample_item(const run::Samples& samples, const run::Sample& sample) {
  const std::string label = escape(class_name(samples, sample.label));
  const std::string prediction = escape(class_name(samples, sample.prediction));
  const bool right = sample.label == sample.prediction;
  const std::string sure = std::isfinite(sample.probability) ? text(" ", fixed(sample.probability, 2)) : "";
  return text("<li><img alt=\"", label, "\" src=\"data:image/png;base64,", base64(pictures::encode_png(sample.image)),
              "\">", label, "<br><span class=\"", right ? "good\">&#10003; " : "bad\">&#10007; ",
              right ? "right" : prediction, sure, "</span></li>\n");
}

}  // namespace

std::string confusion_section(const run::RunData& run) {
  if (!run.confusion || run.confusion->classes.empty()) return "";
  const run::Confusion& confusion = *run.confusion;
  const auto worst = worst_confusions(confusion);
  double most = 0;
  for (const auto& pair : worst) most = std::max(most, pair.share);
  const std::string list =
      text("<div class=\"card\"><h3>Most often confused</h3>\n", confused_list(confusion, worst), "</div>\n");
  if (confusion.classes.size() > largest_matrix)
    return "<div class=\"grid\">\n" + list + class_table(run, confusion) + "</div>\n";
  return text(
      "<div class=\"grid\">\n<div class=\"card\"><p class=\"muted\">Rows: the true class; columns: the "
      "prediction.</p>\n",
      matrix(confusion, most), "</div>\n", class_table(run, confusion), list, "</div>\n");
}

std::string sample_section(const run::RunData& run) {
  const auto& samples = run.samples.samples;
  if (samples.empty()) return "";
  std::string items;
  for (size_t i = 0; i < std::min(samples.size(), most_samples); ++i) items += sample_item(run.samples, samples[i]);
  const std::string rest = samples.size() > most_samples ? text("<p class=\"muted\">", samples.size() - most_samples,
                                                                " more in samples.json</p>\n")
                                                         : "";
  return "<div class=\"card\"><ul class=\"samples\">\n" + items + "</ul>" + rest + "</div>\n";
}

std::string setup_section(const run::RunData& run) {
  std::string cards;
  if (!run.config.empty())
    cards += "<div class=\"card\"><h3>Configuration</h3>\n<pre tabindex=\"0\">" + escape(run.config) + "</pre></div>\n";
  std::string rows;
  if (run.summary) {
    for (const auto& [name, value] : run.summary->fingerprint)
      rows += text("<tr><th scope=\"row\">", escape(name), "</th><td>", escape(value), "</td></tr>\n");
    if (!run.summary->hash.empty())
      rows += text("<tr><th scope=\"row\">weights</th><td><code>", escape(run.summary->hash), "</code></td></tr>\n");
  }
  if (!rows.empty())
    cards +=
        "<div class=\"card\"><h3>Fingerprint</h3>\n<p class=\"muted\">Wherever this is the same, the same recipe gives "
        "the same weights.</p>\n<table>" +
        rows + "</table></div>\n";
  std::string events;
  if (run.summary)
    for (const auto& event : run.summary->events) events += text("<li>", escape(event), "</li>\n");
  if (!events.empty()) cards += "<div class=\"card\"><h3>What befell it</h3>\n<ul>\n" + events + "</ul></div>\n";
  return cards.empty() ? "" : "<div class=\"grid\">\n" + cards + "</div>\n";
}

}  // namespace lockstep::report
