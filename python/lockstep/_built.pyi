# SPDX-License-Identifier: Apache-2.0
# What the build wrote down (python/CMakeLists.txt).
torch_version: str
