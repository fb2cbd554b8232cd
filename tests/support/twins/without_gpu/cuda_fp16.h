// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/Half.h>

// NOLINTNEXTLINE(bugprone-reserved-identifier)
using __half = c10::Half;
