// SPDX-License-Identifier: Apache-2.0
// What those see besides that put networks together: all that torch has. torch/nn.h alone is 18 seconds to parse.
#pragma once

#include "module_pch.h"

#include <torch/nn.h>
#include <torch/optim.h>
