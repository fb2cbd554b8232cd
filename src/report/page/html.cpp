// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/html.h"

#include "lockstep/base/detail/base64.h"
#include "lockstep/base/detail/sha256.h"
#include "lockstep/base/error.h"
#include "lockstep/report/format.h"
#include "report/draw/palette.h"
#include "report/escape.h"
#include "report/page/page.h"

namespace lockstep::report {
namespace {

std::string script() {
  return text(page_js, scenes_js);
}

// The palette's colours are those of the pictures too.
std::string style() {
  return text(ink_rules(Theme::light), "@media(prefers-color-scheme:dark){", ink_rules(Theme::dark), "}", page_css);
}

// The browser runs this page's script, and no other that a run's strings might smuggle in.
std::string script_hash() {
  const std::string content = script();
  Sha256 sha;
  sha.update(content.data(), content.size());
  const std::string digits = sha.hex();
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return "'sha256-" + base64(bytes) + "'";
}

std::string head(const std::string& title) {
  return text("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
              "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
              "'unsafe-inline'; script-src ",
              script_hash(), "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
              escape(title), "</title>\n<style>", style(), "</style>\n</head>\n");
}

std::string badge(const run::RunData& run) {
  if (!run.summary) return "";
  const std::string& state = run.summary->state;
  const char* const kind = state == "finished" ? "good" : state.starts_with("failed") ? "bad" : "warn";
  return text("<span class=\"badge ", kind, "\">", escape(state), "</span>");
}

std::string joined(std::initializer_list<std::string> parts) {
  std::string out;
  for (const auto& part : parts)
    if (!part.empty()) out += (out.empty() ? "" : " &middot; ") + escape(part);
  return out;
}

std::string subtitle(const run::RunData& run) {
  if (!run.summary) return "";
  const run::Summary& s = *run.summary;
  const std::string line = joined({s.model, s.dataset, s.placement, s.replicas > 0 ? text(s.replicas, " replicas") : "",
                                   s.batch > 0 ? text("batch ", s.batch) : ""});
  return (line.empty() ? "" : "<p class=\"muted\">" + line + "</p>\n") +
         (s.forecast.empty() ? "" : "<p class=\"muted\">A step: " + escape(s.forecast) + "</p>\n");
}

// The key of all charts. The script turns it into buttons that hide a run.
std::string run_buttons(std::span<const run::RunData> runs) {
  std::string buttons;
  for (size_t r = 0; r < runs.size(); ++r)
    buttons += text("<button type=\"button\" disabled aria-pressed=\"true\" data-toggles=\"", r, "\">",
                    swatch(static_cast<int>(r)), escape(runs[r].name), "</button>\n");
  return "<div class=\"runs\" role=\"group\" aria-label=\"Runs shown in the charts\">\n" + buttons + "</div>\n";
}

std::string one_run(const run::RunData& run) {
  return section("Curves", chart_section({&run, 1})) + section("Where a step's time goes", time_section({&run, 1})) +
         section("Speedup", speedup_section({&run, 1})) + section("Confusion", confusion_section(run)) +
         section("Samples", sample_section(run)) + section("Scenes", scene_section(run)) +
         section("Set-up", setup_section(run));
}

std::string details_of(const run::RunData& run, size_t number) {
  const auto part = [](const char* title, const std::string& body) {
    return body.empty() ? "" : text("<h3 class=\"muted\">", title, "</h3>\n", body);
  };
  const std::string body = part("Confusion", confusion_section(run)) + part("Samples", sample_section(run)) +
                           part("Scenes", scene_section(run)) + part("Set-up", setup_section(run));
  if (body.empty()) return "";
  return text("<details><summary>", swatch(static_cast<int>(number)), escape(run.name), badge(run),
              "</summary>\n<div class=\"card\">", subtitle(run), body, "</div></details>\n");
}

std::string several_runs(std::span<const run::RunData> runs) {
  std::string details;
  for (size_t r = 0; r < runs.size(); ++r) details += details_of(runs[r], r);
  return run_buttons(runs) + section("Curves", chart_section(runs)) +
         section("Where a step's time goes", time_section(runs)) + section("Speedup", speedup_section(runs)) +
         section("What is not the same", differences(runs)) + section("Each run", details);
}

}  // namespace

std::string section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : text("<section>\n<h2>", escape(title), "</h2>\n", body, "</section>\n");
}

std::string swatch(int color, bool dashed) {
  return text("<span class=\"swatch", dashed ? " dashed" : "", " ink-", color % 8, "\"></span>");
}

std::string report_page(std::span<const run::RunData> runs) {
  require(!runs.empty(), "report", "got no runs, expected at least one folder, as in 'lockstep report runs/NAME'");
  const bool alone = runs.size() == 1;
  const std::string title = alone ? runs[0].name : text(runs.size(), " runs compared");
  std::string page = head(title + " - Lockstep") + "<body>\n<header>\n<h1>" + escape(title) +
                     (alone ? badge(runs[0]) : "") + "</h1>\n";
  page += alone ? subtitle(runs[0]) + headline(runs[0]) : comparison(runs) + verdict(runs);
  page += "</header>\n<main>\n";
  page += alone ? one_run(runs[0]) : several_runs(runs);
  page += "</main>\n<footer>Written by <code>lockstep report</code>.</footer>\n<script>";
  page += script();
  return page += "</script>\n</body>\n</html>\n";
}

std::string share_row(const std::string& name, double share, int color, const std::string& words) {
  return text("<tr><th scope=\"row\">", name, "</th><td class=\"n\">", escape(words), "</td><td class=\"ink-",
              color % 8, "\"><span class=\"meter\" style=\"width:", fixed(100 * share, 1), "%\"></span></td></tr>\n");
}

}  // namespace lockstep::report
