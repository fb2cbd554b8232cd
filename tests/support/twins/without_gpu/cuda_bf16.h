// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>

// NOLINTNEXTLINE(bugprone-reserved-identifier)
using __nv_bfloat16 = c10::BFloat16;
