// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep {

/// Takes the place of some of libtorch's operations, in this process and for good: those that draw random numbers,
/// convolution, average pooling and batch norm. Where no scope of ours lives on the calling thread and no layer was
/// converted, they run as before. Nothing happens before the first call, and nothing in a second one.
///
/// No program has to call it: Team::create, parallel_apply, convert_sync_batchnorm and every RandomScope do. libtorch
/// can't exchange an operation while another thread runs it, so a program whose threads compute before it comes to any
/// of these calls this first.
void install_overrides();

/// The same of matrix products, for linear layers in slices: where somebody wants them (Team::create with slices).
void install_sliced_products();

}  // namespace lockstep
