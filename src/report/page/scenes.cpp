// SPDX-License-Identifier: Apache-2.0
// Clouds with their classes and the network's. Without a script, or without WebGL, they are pictures; with both the
// script makes one view of them that can be turned.
#include <cmath>

#include "lockstep/base/detail/base64.h"
#include "lockstep/base/error.h"
#include "lockstep/pictures/png.h"
#include "lockstep/report/cloud_view.h"
#include "lockstep/report/format.h"
#include "report/escape.h"
#include "report/page/page.h"

namespace lockstep::report {
namespace {

constexpr int picture_height = 300;

pictures::Rgb colour_of(uint8_t label) {
  return class_colour(label == run::Scene::kUnknown ? -1 : label);
}

std::string hex(const pictures::Rgb& colour) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out = "#";
  for (const uint8_t part : colour) out += {digits[part >> 4], digits[part & 15]};
  return out;
}

std::string picture(const run::Scene& scene, const std::vector<uint8_t>& labels, const char* what) {
  std::vector<std::array<float, 3>> points;
  for (const auto& [x, y, z] : scene.voxels)
    points.push_back({static_cast<float>(x), static_cast<float>(y), static_cast<float>(z)});
  std::vector<pictures::Rgb> colours;
  for (const uint8_t label : labels) colours.push_back(colour_of(label));
  const pictures::Image image = draw_cloud(points, colours, scene.mark, picture_height);
  return text("<figure><img alt=\"Scene ", scene.id, ", ", what, "\" src=\"data:image/png;base64,",
              base64(pictures::encode_png(image)), "\"><figcaption>", what, "</figcaption></figure>\n");
}

// "93.1 % of its voxels right"; empty where no class is known.
std::string found(const run::Scene& scene) {
  size_t known = 0, right = 0;
  for (size_t i = 0; i < scene.labels.size(); ++i) {
    known += scene.labels[i] != run::Scene::kUnknown;
    right += scene.labels[i] == scene.predictions[i];
  }
  return known == 0
             ? ""
             : fixed(100 * static_cast<double>(right) / static_cast<double>(known), 1) + " % of the voxels right";
}

std::string scene_item(const run::Scene& scene) {
  const std::string name = text("Scene ", scene.id);
  return text("<li data-name=\"", name, "\" data-found=\"", found(scene), "\" data-mark=\"", compact(scene.mark, 4),
              "\" data-voxels=\"", run::packed(scene.voxels), "\" data-truth=\"", run::packed(scene.labels),
              "\" data-prediction=\"", run::packed(scene.predictions), "\" data-colour=\"", run::packed(scene.colours),
              "\"><h3>", name, " <span class=\"muted\">", found(scene), "</span></h3>\n",
              picture(scene, scene.labels, "truth"), picture(scene, scene.predictions, "prediction"), "</li>\n");
}

std::string legend_item(const std::string& name, uint8_t label) {
  return text("<li><span class=\"swatch box\" style=\"background:", hex(colour_of(label)), "\"></span>", escape(name),
              "</li>\n");
}

std::string legend(const std::vector<std::string>& classes) {
  std::string items;
  for (size_t c = 0; c < classes.size(); ++c) items += legend_item(classes[c], static_cast<uint8_t>(c));
  return "<ul class=\"legend\">\n" + items + legend_item("unknown", run::Scene::kUnknown) + "</ul>\n";
}

/// The colours of classes 0, 1, ... and of the unknown one, for the script.
std::string palette(size_t classes) {
  std::vector<pictures::Rgb> colours;
  for (size_t c = 0; c < classes; ++c) colours.push_back(colour_of(static_cast<uint8_t>(c)));
  colours.push_back(colour_of(run::Scene::kUnknown));
  return run::packed(colours);
}

}  // namespace

std::string scene_section(const run::RunData& run) {
  if (run.scenes.scenes.empty()) return "";
  std::string items;
  for (const run::Scene& scene : run.scenes.scenes) items += scene_item(scene);
  return text("<div class=\"card scenes\" data-palette=\"", palette(run.scenes.classes.size()), "\">\n<ul>\n", items,
              "</ul>\n", legend(run.scenes.classes), "</div>\n");
}

}  // namespace lockstep::report
