// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sparse/nn/convolution.h"

#include <ATen/ops/empty.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/context/draws.h"
#include "lockstep/numerics/random.h"
#include "lockstep/sparse/convolution.h"

namespace lockstep::sparse::nn {
namespace {

AxisValues spread(const char* name, const AxisValues& values, int64_t dimension) {
  if (values.size() == 1) return AxisValues(dimension, values[0]);
  require(static_cast<int64_t>(values.size()) == dimension, "KernelOptions", name, " is ", to_string(values),
          ", expected one value or ", dimension);
  return values;
}

void fill_uniform(const at::Tensor& parameter, int64_t fan) {
  const at::NoGradGuard no_grad;
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, fan)));
  if (parameter.defined()) parameter.uniform_(-bound, bound);
}

/// A module of no behaviour that gives its parameters a name of their own.
struct Named : torch::nn::Cloneable<Named> {
  Named(int64_t in, int64_t out, bool bias) : in(in), out(out), has_bias(bias) { reset(); }
  void reset() override {
    weight = register_parameter("weight", at::empty({out, in}));
    fill_uniform(weight, in);
    if (has_bias) fill_uniform(bias = register_parameter("bias", at::empty({out})), in);
  }
  int64_t in, out;
  bool has_bias;
  at::Tensor weight, bias;
};

}  // namespace

void kaiming_normal_(const at::Tensor& kernel, double gain, bool fan_of_outputs) {
  require(kernel.defined() && (kernel.dim() == 2 || kernel.dim() == 3), "kaiming_normal_", "kernel has ",
          kernel.defined() ? kernel.dim() : 0, " dimensions, expected [K, Cin, Cout] or [Cin, Cout]");
  const int64_t volume = kernel.dim() == 3 ? kernel.size(0) : 1;
  const int64_t fan = volume * kernel.size(fan_of_outputs ? -1 : -2);
  normal_(kernel, draw_key());
  const at::NoGradGuard no_grad;
  kernel.mul_(gain / std::sqrt(static_cast<double>(std::max<int64_t>(1, fan))));
}

LayerGeometry KernelOptions::geometry(bool transposed, bool generative) const {
  require(dimension >= 1 && dimension <= 8, "KernelOptions", "dimension is ", dimension, ", expected 1 to 8");
  const AxisValues size = spread("kernel_size", kernel_size, dimension),
                   dilated = spread("dilation", dilation, dimension);
  LayerGeometry made;
  made.region = region == RegionType::hypercube    ? KernelRegion::hypercube(size, dilated)
                : region == RegionType::hypercross ? KernelRegion::hypercross(size, dilated)
                                                   : KernelRegion::with_offsets(offsets, dilated);
  made.stride = spread("stride", stride, dimension);
  for (const int64_t value : made.stride)
    require(value >= 1, "KernelOptions", "stride is ", to_string(made.stride), ", expected positive values");
  made.transposed = transposed;
  made.generative = generative || (transposed && expand_coordinates);
  made.expand_coordinates = !transposed && expand_coordinates;
  return made;
}

ConvolutionBase::ConvolutionBase(ConvolutionOptions options, bool transposed, bool generative)
    : options_(std::move(options)), geometry_(options_.kernel.geometry(transposed, generative)) {}

ConvolutionImpl::ConvolutionImpl(ConvolutionOptions options, ConvolutionKind kind)
    : ConvolutionBase(std::move(options), kind != ConvolutionKind::forward, kind == ConvolutionKind::generative) {
  require(options_.in_channels >= 0 && options_.out_channels >= 0 && options_.groups >= 1 &&
              options_.in_channels % options_.groups == 0 && options_.out_channels % options_.groups == 0,
          "Convolution", "channels are ", options_.in_channels, " -> ", options_.out_channels, " in ", options_.groups,
          " groups, expected multiples of the number of groups");
  reset();
}

void ConvolutionImpl::reset() {
  const int64_t volume = geometry_.region.volume(), in = options_.in_channels / options_.groups;
  std::vector<int64_t> shape = {volume, in, options_.out_channels};
  if (volume == 1) shape.erase(shape.begin());
  kernel = register_parameter("kernel", at::empty(shape));
  if (options_.bias) bias = register_parameter("bias", at::empty({1, options_.out_channels}));
  reset_parameters();
}

void ConvolutionImpl::reset_parameters() {
  const int64_t fan = geometry_.region.volume() *
                      (geometry_.transposed ? options_.out_channels : options_.in_channels) / options_.groups;
  fill_uniform(kernel, fan);
  fill_uniform(bias, fan);
}

void ConvolutionImpl::pretty_print(std::ostream& stream) const {
  stream << "Convolution(" << options_.in_channels << " -> " << options_.out_channels << ", " << geometry_.to_string()
         << ")";
}

SparseTensor ConvolutionImpl::forward(const SparseTensor& x, const OutputCoordinates& coordinates) {
  return convolution(x, kernel, bias, geometry_, options_.groups, coordinates);
}

ChannelwiseConvolutionImpl::ChannelwiseConvolutionImpl(ConvolutionOptions options)
    : ConvolutionBase(std::move(options), false, false) {
  reset();
}

void ChannelwiseConvolutionImpl::reset() {
  kernel = register_parameter("kernel", at::empty({geometry_.region.volume(), options_.in_channels}));
  if (options_.bias) bias = register_parameter("bias", at::empty({1, options_.in_channels}));
  reset_parameters();
}

void ChannelwiseConvolutionImpl::reset_parameters() {
  fill_uniform(kernel, geometry_.region.volume());
  fill_uniform(bias, geometry_.region.volume());
}

SparseTensor ChannelwiseConvolutionImpl::forward(const SparseTensor& x, const OutputCoordinates& coordinates) {
  return channelwise_convolution(x, kernel, bias, geometry_, coordinates);
}

LinearImpl::LinearImpl(int64_t in_features, int64_t out_features, bool bias)
    : in_(in_features), out_(out_features), has_bias_(bias) {
  reset();
}

void LinearImpl::reset() {
  linear_ = register_module("linear", std::make_shared<Named>(in_, out_, has_bias_));
}

at::Tensor LinearImpl::on_features(const at::Tensor& features) {
  const auto& own = static_cast<Named&>(*linear_);
  return sparse::linear(features, own.weight.t(), own.bias);
}

SparseTensor LinearImpl::forward(const SparseTensor& x) {
  return x.with_features(on_features(x.features()));
}

}  // namespace lockstep::sparse::nn
