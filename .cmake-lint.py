# SPDX-License-Identifier: Apache-2.0
# What ./dev lint checks in CMake files, with cmake-lint. Layout is by hand: cmake-format spreads short calls over lines.
with section("parse"):
    additional_commands = {
        "lockstep_layer": {"kwargs": {"NAME": 1, "SOURCES": "+", "USES": "+", "PRIVATE_USES": "+"}, "flags": ["NO_PCH"]},
        "lockstep_test": {"kwargs": {"NAME": 1, "SOURCES": "+", "USES": "+", "LABELS": "+", "TIMEOUT": 1}},
    }
with section("format"):
    line_width = 120
with section("lint"):
    # Names and docstrings are reviewed by people; E1126 takes set(... FORCE) for a mistake.
    disabled_codes = ["C0103", "C0111", "C0113", "E1126"]
