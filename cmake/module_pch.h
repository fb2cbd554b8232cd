// SPDX-License-Identifier: Apache-2.0
// What the layers that handle networks see besides, without any network's parts.
#pragma once

#include "tensor_pch.h"

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
