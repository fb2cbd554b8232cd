# SPDX-License-Identifier: Apache-2.0
"""The package in which MinkowskiEngine kept its extension, for programs that import names from it: see _C."""
