# SPDX-License-Identifier: Apache-2.0
"""The program's sources, where a rule needs a word of them."""
