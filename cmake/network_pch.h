// SPDX-License-Identifier: Apache-2.0
// What those see besides that put networks together: what ours and the tests' are made of. The rest of torch/nn.h would
// cost each of them two seconds more.
#pragma once

#include "module_pch.h"

#include <torch/nn/functional/loss.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/optim/sgd.h>
