// SPDX-License-Identifier: Apache-2.0
#include "trials/forecast/measurements.h"

namespace lockstep::trials {

using run::Json;

Json to_json(const parallel::StepCost& cost) {
  Json stages = Json::array(), gradients = Json::array();
  for (const auto& stage : cost.stages)
    stages.push_back({{"name", stage.name},
                      {"forward", stage.forward},
                      {"backward", stage.backward},
                      {"late_backward", stage.late_backward},
                      {"sliced_forward", stage.sliced_forward},
                      {"sliced_backward", stage.sliced_backward},
                      {"sliced_layers", stage.sliced_layers},
                      {"kept_bytes", stage.kept_bytes},
                      {"handed_bytes", stage.handed_bytes},
                      {"handed_tensors", stage.handed_tensors},
                      {"returned_bytes", stage.returned_bytes},
                      {"returned_tensors", stage.returned_tensors}});
  for (const auto& gradient : cost.gradients)
    gradients.push_back({{"numel", gradient.numel},
                         {"element_bytes", gradient.element_bytes},
                         {"stage", gradient.stage},
                         {"at", gradient.at}});
  return {{"stages", stages},      {"gradients", gradients}, {"data", cost.data},      {"sum_row", cost.sum_row},
          {"update", cost.update}, {"turn", cost.turn},      {"meeting", cost.meeting}};
}

parallel::StepCost step_cost_from(const Json& json) {
  parallel::StepCost cost{.data = json.at("data"),
                          .sum_row = json.at("sum_row"),
                          .update = json.at("update"),
                          .turn = json.at("turn"),
                          .meeting = json.at("meeting")};
  for (const Json& stage : json.at("stages"))
    cost.stages.push_back({.name = stage.at("name"),
                           .forward = stage.at("forward"),
                           .backward = stage.at("backward"),
                           .late_backward = stage.at("late_backward"),
                           .sliced_forward = stage.at("sliced_forward"),
                           .sliced_backward = stage.at("sliced_backward"),
                           .sliced_layers = stage.at("sliced_layers"),
                           .kept_bytes = stage.at("kept_bytes"),
                           .handed_bytes = stage.at("handed_bytes"),
                           .handed_tensors = stage.at("handed_tensors"),
                           .returned_bytes = stage.at("returned_bytes"),
                           .returned_tensors = stage.at("returned_tensors")});
  for (const Json& gradient : json.at("gradients"))
    cost.gradients.push_back({.numel = gradient.at("numel"),
                              .element_bytes = gradient.at("element_bytes"),
                              .stage = gradient.at("stage"),
                              .at = gradient.at("at")});
  return cost;
}

Json to_json(const parallel::LinkCost& link) {
  return {{"latency", link.latency},
          {"bytes_per_second", link.bytes_per_second},
          {"message", link.message},
          {"cpu_byte", link.cpu_byte},
          {"cpu_message", link.cpu_message}};
}

parallel::LinkCost link_from(const Json& json) {
  return {.latency = json.at("latency"),
          .bytes_per_second = json.at("bytes_per_second"),
          .message = json.at("message"),
          .cpu_byte = json.at("cpu_byte"),
          .cpu_message = json.at("cpu_message")};
}

}  // namespace lockstep::trials
