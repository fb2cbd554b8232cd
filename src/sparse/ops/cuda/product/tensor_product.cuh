// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "sparse/ops/cuda/convolution.h"

// On a GPU, and in tests that bring a wmma of their own; not in nvcc's pass over the CPU's side.
#if defined(__CUDA_ARCH__) || !defined(__CUDACC__)
#define LOCKSTEP_HAS_WMMA
#endif

namespace lockstep::sparse::cuda {

/// What tensor cores take for a storage type: float32 becomes TF32, rounded to 10 bits of mantissa.
template <class Storage>
struct TensorElement;
template <>
struct TensorElement<c10::Half> {
  using Memory = __half;
  using Fragment = __half;
  static constexpr int kStep = 16;
};
template <>
struct TensorElement<c10::BFloat16> {
  using Memory = __nv_bfloat16;
  using Fragment = __nv_bfloat16;
  static constexpr int kStep = 16;
};
template <>
struct TensorElement<float> {
  using Memory = float;
  using Fragment = nvcuda::wmma::precision::tf32;
  static constexpr int kStep = 8;
};

/// ScalarProduct's twin on tensor cores, with sums in float32. A warp owns 16 rows of C.
template <class Storage, int kColumns>
struct TensorProduct {
  using Value = Storage;
  using Sum = float;
  using Element = TensorElement<Storage>;
  static constexpr int kPart = 16, kStep = Element::kStep, kDepth = 2 * kStep, kAcross = kColumns / kPart;
  static constexpr bool kByDepthOnly = false;
  static_assert(kTileThreads / 32 * kPart == kTileRows);

  /// Fragments are loaded from addresses that must be multiples of 32 bytes.
  union Shared {
    struct {
      Factor<Value, kDepth, kTileRows> a;
      Factor<Value, kDepth, kColumns> b;
    };
    alignas(128) Sum c[kTileRows][kColumns + kTilePad];  // when all has been multiplied
  };
  using Accumulator = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kPart, kPart, kStep, float>;
  struct Registers {
    Accumulator part[kAcross], total[kAcross];
  };

  LOCKSTEP_HOST_DEVICE static void clear_total(Registers& registers) {
#ifdef LOCKSTEP_HAS_WMMA
    for (int j = 0; j < kAcross; ++j) nvcuda::wmma::fill_fragment(registers.total[j], 0.0f);
#endif
  }
  LOCKSTEP_HOST_DEVICE static void clear_part(Registers& registers) {
#ifdef LOCKSTEP_HAS_WMMA
    for (int j = 0; j < kAcross; ++j) nvcuda::wmma::fill_fragment(registers.part[j], 0.0f);
#endif
  }

  LOCKSTEP_HOST_DEVICE static void multiply(const Shared& shared, int thread, Registers& registers, bool a_by_depth,
                                            bool b_by_depth) {
#ifdef LOCKSTEP_HAS_WMMA
    using nvcuda::wmma::col_major, nvcuda::wmma::row_major;
    if (a_by_depth)
      b_by_depth ? multiply_as<col_major, row_major>(shared, thread, registers)
                 : multiply_as<col_major, col_major>(shared, thread, registers);
    else
      b_by_depth ? multiply_as<row_major, row_major>(shared, thread, registers)
                 : multiply_as<row_major, col_major>(shared, thread, registers);
#endif
  }
  LOCKSTEP_HOST_DEVICE static void add_part(Registers& registers) {
#ifdef LOCKSTEP_HAS_WMMA
    // Fragments of one type spread a matrix over threads in one way, so sums need no look at it.
    for (int j = 0; j < kAcross; ++j)
      for (int i = 0; i < registers.total[j].num_elements; ++i) registers.total[j].x[i] += registers.part[j].x[i];
#endif
  }

  LOCKSTEP_HOST_DEVICE static void stage(Shared& shared, int thread, Registers& registers) {
#ifdef LOCKSTEP_HAS_WMMA
    for (int j = 0; j < kAcross; ++j)
      nvcuda::wmma::store_matrix_sync(&shared.c[thread / 32 * kPart][j * kPart], registers.total[j],
                                      kColumns + kTilePad, nvcuda::wmma::mem_row_major);
#endif
  }
  template <class Write>
  LOCKSTEP_HOST_DEVICE static void for_each_total(const Shared& shared, int thread, const Registers&,
                                                  const Write& write) {
    for (int i = thread; i < kTileRows * kColumns; i += kTileThreads)
      write(i / kColumns, i % kColumns, shared.c[i / kColumns][i % kColumns]);
  }

 private:
#ifdef LOCKSTEP_HAS_WMMA
  // A is turned here: a factor that lies by depth holds the columns of what is multiplied.
  template <class LayoutOfA, class LayoutOfB>
  LOCKSTEP_HOST_DEVICE static void multiply_as(const Shared& shared, int thread, Registers& registers) {
    using namespace nvcuda;
    using Memory = typename Element::Memory;
    using Fragment = typename Element::Fragment;
    constexpr bool kAByDepth = std::is_same_v<LayoutOfA, wmma::col_major>;
    constexpr bool kBByDepth = std::is_same_v<LayoutOfB, wmma::row_major>;
    const auto* const a_values = reinterpret_cast<const Memory*>(shared.a.values);
    const auto* const b_values = reinterpret_cast<const Memory*>(shared.b.values);
    const int row = thread / 32 * kPart;
#pragma unroll
    for (int d = 0; d < kDepth; d += kStep) {
      wmma::fragment<wmma::matrix_a, kPart, kPart, kStep, Fragment, LayoutOfA> a;
      wmma::load_matrix_sync(a, a_values + shared.a.at(d, row, kAByDepth), shared.a.line(kAByDepth));
      round(a);
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        wmma::fragment<wmma::matrix_b, kPart, kPart, kStep, Fragment, LayoutOfB> b;
        wmma::load_matrix_sync(b, b_values + shared.b.at(d, j * kPart, kBByDepth), shared.b.line(kBByDepth));
        round(b);
        wmma::mma_sync(registers.part[j], a, b, registers.part[j]);
      }
    }
  }
#endif
  template <class Matrix>
  LOCKSTEP_HOST_DEVICE static void round(Matrix& matrix) {
#ifdef LOCKSTEP_HAS_WMMA
    if constexpr (std::is_same_v<Storage, float>)
      for (int i = 0; i < matrix.num_elements; ++i) matrix.x[i] = nvcuda::wmma::__float_to_tf32(matrix.x[i]);
#endif
  }
};

/// 16-bit types always take tensor cores, float32 on request, float64 never.
template <class Storage, int kColumns, bool kTensorCores>
struct ProductFor {
  using type = ScalarProduct<Storage, kColumns>;
};
template <class Storage, int kColumns>
struct ProductFor<Storage, kColumns, true> {
  using type = TensorProduct<Storage, kColumns>;
};

/// Calls launch(product type, column count) for a job with `columns` output channels a group.
template <class Storage, class Launch>
void choose_product(int64_t columns, bool tf32, const Launch& launch) {
  constexpr bool kHalf = sizeof(Storage) == 2;
  const auto choose_columns = [&](auto tensor_cores) {
    constexpr bool kTensorCores = decltype(tensor_cores)::value;
    if (columns <= kNarrow)
      launch(typename ProductFor<Storage, kNarrow, kTensorCores>::type{}, std::integral_constant<int, kNarrow>{});
    else
      launch(typename ProductFor<Storage, kWide, kTensorCores>::type{}, std::integral_constant<int, kWide>{});
  };
  if constexpr (kHalf)
    choose_columns(std::true_type{});
  else if constexpr (std::is_same_v<Storage, float>)
    tf32 ? choose_columns(std::true_type{}) : choose_columns(std::false_type{});
  else
    choose_columns(std::false_type{});
}

}  // namespace lockstep::sparse::cuda
