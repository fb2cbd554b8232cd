// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/base/detail/instruction_set.h"

namespace lockstep {
LOCKSTEP_DECLARE_ISA(CpuLevel compiled_for())
LOCKSTEP_DECLARE_ISA(void add(float* into, const float* from, long size))
}  // namespace lockstep
