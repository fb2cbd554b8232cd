// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/checkpoint.h"

#include <chrono>
#include <exception>
#include <utility>

#include "lockstep/archive/detail/tensor_archive.h"
#include "lockstep/base/detail/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/run/run_files.h"

namespace lockstep::run {
namespace {

constexpr const char* kFormat = "lockstep checkpoint";
constexpr int64_t kVersion = 1;

archive::Value to_value(const Tensors& tensors) {
  archive::Value::Dict dict;
  for (const auto& [name, tensor] : tensors) dict.push_back({name, {tensor}});
  return {std::move(dict)};
}

Tensors to_tensors(const archive::Value& value, const std::string& what) {
  Tensors tensors;
  for (const auto& [name, item] : value.as<archive::Value::Dict>(what))
    tensors[name] = item.as<at::Tensor>(text(what, ".", name));
  return tensors;
}

template <class T>
archive::Value to_list(const std::vector<T>& items) {
  archive::Value::List list;
  for (const T& item : items) list.push_back({item});
  return {std::move(list)};
}

template <class T>
std::vector<T> from_list(const archive::Value& value, const std::string& what) {
  std::vector<T> items;
  for (const archive::Value& item : value.as<archive::Value::List>(what)) items.push_back(item.as<T>(what));
  return items;
}

archive::Value to_value(const data::DatasetInfo& info) {
  return {archive::Value::Dict{{"name", {info.name}},
                               {"size", {info.size}},
                               {"input_shape", to_list(info.input_shape)},
                               {"target_shape", to_list(info.target_shape)},
                               {"class_names", to_list(info.class_names)},
                               {"voxel", {info.voxel}},
                               {"whole_clouds", {info.whole_clouds}},
                               {"mesh_points", {info.mesh_points}}}};
}

data::DatasetInfo info_of(const archive::Value& value) {
  data::DatasetInfo info{.name = value.at("name").as<std::string>("name"),
                         .size = value.at("size").as<int64_t>("size"),
                         .input_shape = from_list<int64_t>(value.at("input_shape"), "input_shape"),
                         .target_shape = from_list<int64_t>(value.at("target_shape"), "target_shape"),
                         .class_names = from_list<std::string>(value.at("class_names"), "class_names"),
                         .voxel = value.at("voxel").as<double>("voxel"),
                         .whole_clouds = value.at("whole_clouds").as<bool>("whole_clouds"),
                         .mesh_points = value.at("mesh_points").as<int64_t>("mesh_points")};
  info.classes = std::ssize(info.class_names);
  return info;
}

archive::Value to_value(const Checkpoint& checkpoint) {
  const TrainingCursor& cursor = checkpoint.cursor;
  archive::Value::Dict fingerprint;
  for (const auto& [name, item] : checkpoint.fingerprint) fingerprint.push_back({name, {item}});
  archive::Value::Dict out{
      {"format", {std::string(kFormat)}},
      {"version", {kVersion}},
      {"model", {checkpoint.model}},
      {"weights", to_value(checkpoint.weights)},
      {"buffers", to_value(checkpoint.buffers)},
      {"optimizer", to_value(checkpoint.optimizer)},
      {"cursor", {archive::Value::Dict{{"epoch", {cursor.epoch}}, {"batch", {cursor.batch}}, {"step", {cursor.step}}}}},
      {"seed", {static_cast<int64_t>(checkpoint.seed)}},
      {"replicas", {checkpoint.replicas}},
      {"config", {checkpoint.config}},
      {"fingerprint", {std::move(fingerprint)}},
      {"extra", {checkpoint.extra}},
  };
  if (checkpoint.data) out.push_back({"data", to_value(*checkpoint.data)});
  return {std::move(out)};
}

Checkpoint from_value(const archive::Value& value, const std::string& name) {
  require(is_checkpoint(value), "load_checkpoint", "'", name, "' holds ", value.kind(),
          ", expected a checkpoint of lockstep train (weights alone go with --init)");
  const int64_t version = value.at("version").as<int64_t>("version");
  require(version == kVersion, "load_checkpoint", "'", name, "' has version ", version, ", expected ", kVersion);
  Checkpoint out;
  out.model = value.at("model").as<std::string>("model");
  out.weights = to_tensors(value.at("weights"), "weights");
  out.buffers = to_tensors(value.at("buffers"), "buffers");
  out.optimizer = to_tensors(value.at("optimizer"), "optimizer");
  const archive::Value& cursor = value.at("cursor");
  out.cursor = {cursor.at("epoch").as<int64_t>("epoch"), cursor.at("batch").as<int64_t>("batch"),
                cursor.at("step").as<int64_t>("step")};
  out.seed = static_cast<uint64_t>(value.at("seed").as<int64_t>("seed"));
  out.replicas = value.at("replicas").as<int64_t>("replicas");
  out.config = value.at("config").as<std::string>("config");
  for (const auto& [key, item] : value.at("fingerprint").as<archive::Value::Dict>("fingerprint"))
    out.fingerprint.emplace_back(key, item.as<std::string>(key));
  out.extra = value.at("extra").as<archive::Value::Dict>("extra");
  if (const archive::Value* info = value.find("data")) out.data = info_of(*info);
  return out;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint) {
  AtomicFile out(file, "save_checkpoint");
  archive::write_archive([&](std::string_view bytes) { out.write(bytes); }, to_value(checkpoint));
  out.commit(Folder{file.parent_path()}.previous_checkpoint());
}

std::string bytes_of(const Checkpoint& checkpoint) {
  std::string all;
  archive::write_archive([&](std::string_view bytes) { all += bytes; }, to_value(checkpoint));
  return all;
}

bool is_checkpoint(const archive::Value& value) {
  const archive::Value* format = value.find("format");
  const auto* text = format == nullptr ? nullptr : std::get_if<std::string>(&format->held);
  return text != nullptr && *text == kFormat;
}

Checkpoint load_checkpoint(std::span<const std::byte> bytes, const std::string& name) {
  return from_value(archive::read_tensor_file(bytes, name), name);
}

Checkpoint load_checkpoint(const std::filesystem::path& file) {
  return read_checkpoint(file).checkpoint;
}

FoundCheckpoint read_checkpoint(const std::filesystem::path& file) {
  archive::MappedFile mapped = archive::map_tensor_file(file.string());
  return {file, from_value(mapped.value, file.string()), std::move(mapped.checksums)};
}

std::optional<FoundCheckpoint> find_checkpoint(const std::filesystem::path& folder) {
  std::exception_ptr damage;
  const Folder run{folder};
  for (const auto& file : {run.checkpoint(), run.previous_checkpoint()}) {
    if (!std::filesystem::exists(file)) continue;
    try {
      return read_checkpoint(file);
    } catch (const archive::DamagedFile& error) {
      log_warning(error.what(), "; looking for the one before it");
      if (!damage) damage = std::current_exception();
    }
  }
  if (damage) std::rethrow_exception(damage);
  return std::nullopt;
}

void CheckpointWriter::save(Checkpoint checkpoint) {
  finish();
  running_ = std::async(std::launch::async, [this, checkpoint = std::move(checkpoint)] {
    try {
      save_checkpoint(file_, checkpoint);
    } catch (...) {
      failed_ = true;
      throw;
    }
  });
}

void CheckpointWriter::finish() {
  if (running_.valid()) running_.get();
}

}  // namespace lockstep::run
