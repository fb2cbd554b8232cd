// SPDX-License-Identifier: Apache-2.0
// What the layers above `comm` see besides: modules and autograd. torch/nn.h alone is 18 seconds to parse.
#pragma once

#include "pch.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn.h>
#include <torch/optim.h>
