// SPDX-License-Identifier: Apache-2.0
#include "data/memory_dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "data/cpu/kernels.h"
#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

void convert(const uint8_t* in, int64_t count, float scale, float shift, float* out, int64_t stride) {
  LOCKSTEP_SELECT_ISA(bytes_to_floats)(in, count, scale, shift, out, stride);
}

void convert(const float* in, int64_t count, float scale, float shift, float* out, int64_t stride) {
  if (scale == 1 && shift == 0 && stride == 1)
    std::memcpy(out, in, count * sizeof(float));
  else
    LOCKSTEP_SELECT_ISA(scale_floats)(in, count, scale, shift, out, stride);
}

/// The three channels of an image, pixel after pixel.
void convert_pixels(const uint8_t* in, int64_t area, Affine affine, float* out) {
  constexpr float kOnes[] = {1, 1, 1}, kNone[] = {0, 0, 0};
  const float* const scale = affine.scale.empty() ? kOnes : affine.scale.data();
  const float* const shift = affine.shift.empty() ? kNone : affine.shift.data();
  LOCKSTEP_SELECT_ISA(bytes_to_pixels)(in, area, scale, shift, out);
}

// A channel that never changes is only centred: dividing by its deviation would divide by zero.
float deviation_of(double variance) {
  return variance > 1e-12 ? static_cast<float>(std::sqrt(variance)) : 1.0f;
}

// A random example is far from the last one: its first lines are fetched while the one before it is converted, which
// takes nearly half off the time of 28 x 28 bytes. The processor sees where the rest is going.
template <class Value>
void prefetch(const Value* example, int64_t numel) {
  constexpr int64_t kLine = 64, kMost = 4096;
  const auto* bytes = reinterpret_cast<const char*>(example);
  const int64_t size = std::min<int64_t>(numel * static_cast<int64_t>(sizeof(Value)), kMost);
  for (int64_t at = 0; at < size; at += kLine) __builtin_prefetch(bytes + at);
}

/// Two passes in double, example after example.
Normalization float_normalization(const float* values, const DatasetInfo& info) {
  const int64_t channels = channels_of(info), area = info.input_numel() / channels;
  Normalization figures;
  for (int64_t c = 0; c < channels; ++c) {
    const auto sum_of = [&](auto&& term) {
      double sum = 0;
      for (int64_t n = 0; n < info.size; ++n) {
        const float* plane = values + (n * channels + c) * area;
        double part = 0;
        for (int64_t i = 0; i < area; ++i) part += term(static_cast<double>(plane[i]));
        sum += part;
      }
      return sum / static_cast<double>(info.size * area);
    };
    const double mean = sum_of([](double x) { return x; });
    figures.mean.push_back(static_cast<float>(mean));
    figures.deviation.push_back(deviation_of(sum_of([mean](double x) { return (x - mean) * (x - mean); })));
  }
  return figures;
}

}  // namespace

int64_t channels_of(const DatasetInfo& info) {
  return info.input_shape.size() == 3 ? info.input_shape[0] : 1;
}

template <class Value>
void write_example(const Value* in, int64_t channels, int64_t area, Layout layout, Affine affine, float* out) {
  if (affine.scale.empty() && (layout == Layout::contiguous || channels == 1))
    return convert(in, channels * area, 1, 0, out, 1);
  const bool planar = layout == Layout::contiguous;
  if constexpr (std::is_same_v<Value, uint8_t>)
    if (!planar && channels == 3) return convert_pixels(in, area, affine, out);
  for (int64_t c = 0; c < channels; ++c)
    convert(in + c * area, area, affine.scale.empty() ? 1 : affine.scale[c], affine.shift.empty() ? 0 : affine.shift[c],
            out + (planar ? c * area : c), planar ? 1 : channels);
}

template void write_example(const uint8_t*, int64_t, int64_t, Layout, Affine, float*);
template void write_example(const float*, int64_t, int64_t, Layout, Affine, float*);

void write_example(const uint8_t* in, int64_t channels, int64_t area, Layout layout, uint8_t* out) {
  if (layout == Layout::contiguous || channels == 1) {
    std::memcpy(out, in, channels * area);
    return;
  }
  if (channels == 3) return LOCKSTEP_SELECT_ISA(interleave_bytes)(in, area, out);
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < area; ++i) out[i * channels + c] = in[c * area + i];
}

void ByteMoments::add(const uint8_t* image, int64_t area) {
  for (auto& counts : counts_) {
    for (int64_t i = 0; i < area; ++i) ++counts[image[i]];
    image += area;
  }
}

Normalization ByteMoments::normalization() const {
  Normalization figures;
  for (const auto& counts : counts_) {
    int64_t count = 0, sum = 0, squares = 0;  // exact: 2^63 / 255^2 is 1.4e14 bytes
    for (int64_t value = 0; value < 256; ++value) {
      count += counts[value];
      sum += counts[value] * value;
      squares += counts[value] * value * value;
    }
    const double n = static_cast<double>(std::max<int64_t>(count, 1));
    const double mean = static_cast<double>(sum) / n;
    const double variance = static_cast<double>(squares) / n - mean * mean;
    figures.mean.push_back(static_cast<float>(mean / 255));
    figures.deviation.push_back(deviation_of(std::max(variance, 0.0) / (255.0 * 255.0)));
  }
  return figures;
}

MemoryDataset::MemoryDataset(DatasetInfo info, at::Tensor inputs, std::vector<int64_t> targets)
    : Dataset(std::move(info)), inputs_(std::move(inputs)), targets_(std::move(targets)) {
  LOCKSTEP_ASSERT(inputs_.is_contiguous() && inputs_.numel() == size() * this->info().input_numel());
  LOCKSTEP_ASSERT(static_cast<int64_t>(targets_.size()) == size() * this->info().target_numel());
}

Normalization MemoryDataset::normalization() const {
  std::call_once(once_, [this] {
    if (inputs_.scalar_type() == at::kFloat) {
      normalization_ = float_normalization(inputs_.const_data_ptr<float>(), info());
      return;
    }
    const int64_t channels = channels_of(info()), numel = info().input_numel();
    ByteMoments moments(channels);
    for (int64_t n = 0; n < size(); ++n) moments.add(inputs_.const_data_ptr<uint8_t>() + n * numel, numel / channels);
    normalization_ = moments.normalization();
  });
  return normalization_;
}

template <class Value, class Write>
void MemoryDataset::for_each_example(std::span<const int64_t> ids, const Write& write) const {
  const Value* const data = inputs_.const_data_ptr<Value>();
  const int64_t numel = info().input_numel();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + 1 < ids.size()) prefetch(data + ids[i + 1] * numel, numel);
    write(data + ids[i] * numel);
  }
}

void MemoryDataset::read_inputs(std::span<const int64_t> ids, Layout layout, Affine affine, float* inputs) const {
  const int64_t numel = info().input_numel(), channels = channels_of(info());
  const auto write = [&](const auto* example) {
    write_example(example, channels, numel / channels, layout, affine, inputs);
    inputs += numel;
  };
  if (holds_bytes())
    for_each_example<uint8_t>(ids, write);
  else
    for_each_example<float>(ids, write);
}

void MemoryDataset::read_bytes(std::span<const int64_t> ids, Layout layout, uint8_t* inputs) const {
  const int64_t numel = info().input_numel(), channels = channels_of(info());
  for_each_example<uint8_t>(ids, [&](const uint8_t* example) {
    write_example(example, channels, numel / channels, layout, inputs);
    inputs += numel;
  });
}

void MemoryDataset::fetch_targets(std::span<const int64_t> ids, int64_t* targets) const {
  const int64_t numel = info().target_numel();
  for (const int64_t id : ids) targets = std::copy_n(targets_.data() + id * numel, numel, targets);
}

std::shared_ptr<const Dataset> make_dataset(std::string name, const at::Tensor& inputs, const at::Tensor& targets,
                                            int64_t classes, std::vector<std::string> class_names) {
  require(inputs.defined() && inputs.dim() >= 2, "make_dataset", name, " has inputs ",
          inputs.defined() ? text("of shape ", inputs.sizes()) : text("that are undefined"),
          ", expected [N, ...] of at least two dimensions");
  require(targets.defined() && targets.dim() >= 1 && targets.size(0) == inputs.size(0), "make_dataset", name, " has ",
          inputs.size(0), " inputs and targets ",
          targets.defined() ? text("of shape ", targets.sizes()) : text("that are undefined"), ", expected [",
          inputs.size(0), "] or [", inputs.size(0), ", ...]");
  require(inputs.scalar_type() == at::kByte || inputs.is_floating_point(), "make_dataset", name, " has inputs of ",
          inputs.scalar_type(), ", expected uint8 or a floating dtype");
  require(c10::isIntegralType(targets.scalar_type(), /*includeBool=*/true), "make_dataset", name, " has targets of ",
          targets.scalar_type(), ", expected whole numbers");
  const auto dtype = inputs.scalar_type() == at::kByte ? at::kByte : at::kFloat;
  const at::Tensor values = inputs.detach().to(at::kCPU, dtype).contiguous();
  const at::Tensor given = targets.detach().to(at::kCPU, at::kLong).contiguous();
  std::vector<int64_t> labels(given.const_data_ptr<int64_t>(), given.const_data_ptr<int64_t>() + given.numel());
  if (classes == 0 && !class_names.empty()) classes = static_cast<int64_t>(class_names.size());
  if (classes == 0)
    for (size_t i = 0; i < labels.size(); ++i) {
      require(labels[i] < kMostClasses, "make_dataset", name, ": target ", i, " is ", labels[i],
              ", expected a class below ", kMostClasses, ", or ", kIgnore, " for none");
      classes = std::max(classes, labels[i] + 1);
    }
  for (size_t i = 0; i < labels.size(); ++i)
    require((0 <= labels[i] && labels[i] < classes) || labels[i] == kIgnore, "make_dataset", name, ": target ", i,
            " is ", labels[i], ", expected a class in [0, ", classes, "), or ", kIgnore, " for none");
  DatasetInfo info{.name = std::move(name),
                   .size = inputs.size(0),
                   .input_shape = inputs.sizes().slice(1).vec(),
                   .target_shape = targets.sizes().slice(1).vec(),
                   .classes = classes,
                   .class_names = std::move(class_names)};
  return std::make_shared<MemoryDataset>(std::move(info), values, std::move(labels));
}

}  // namespace lockstep::data
