# SPDX-License-Identifier: Apache-2.0
"""Blocks of residual networks: resnet_block, senet_block."""
