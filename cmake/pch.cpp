// SPDX-License-Identifier: Apache-2.0
// The precompiled header needs one file to belong to.
