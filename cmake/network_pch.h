// SPDX-License-Identifier: Apache-2.0
// What the layers and tests that handle networks see besides: what ours and the tests' are made of. The rest of
// torch/nn.h would cost each of them two seconds more.
#pragma once

#include "tensor_pch.h"

#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
