// What csrc/kernels/*.cpp define for the instruction set they are compiled for; table.cpp puts it together.
#pragma once

#include "kernels.h"
#include "simd.h"

namespace pagoda::PAGODA_ISA {

// linear_quantized.cpp (q4_0 … q6_k) and linear_dense.cpp (f32, f16, bf16), by format; null for formats of the other file.
LinearKernel linear_quantized(Format format);
LinearKernel linear_dense(Format format);
using UnpackKernel = void (*)(const uint8_t* tile, size_t lane, size_t k, float scale, float* out);
UnpackKernel unpack_quantized(Format format);
UnpackKernel unpack_dense(Format format);

// elementwise.cpp
void rms_norm(const NormTask&);
void layer_norm(const NormTask&);
void add(const float* x, const float* y, size_t n, float* out);
void write_row(const float* x, size_t n, const RowOut& out);
void gated_activation(const float* gate, const float* up, size_t step_16, size_t n, Activation, const RowOut& out);
void activation(const float* x, size_t n, Activation, const RowOut& out);

// attention*.cpp
void rotate(float* head, const float* cosine, const float* sine, size_t half);
using StoreKernel = void (*)(const float* key, const float* value, size_t head_dim, size_t offset, uint8_t* k, uint8_t* v);
StoreKernel store_kv(KVFormat format);
using AttendKernel = void (*)(const AttentionTask&, size_t split, const Partial& out, void* scratch);
AttendKernel attend(KVFormat format);
size_t attention_scratch(size_t head_dim);
void merge(const Partial& running, const Partial& next, size_t rows, size_t head_dim);
void finish(const float* values, float sum, size_t head_dim, float* out);

// selection.cpp
void chunk_maxima(const float* x, size_t n, float* maxima);
size_t collect(const float* x, size_t n, float least, int32_t* places);
int64_t weigh(const float* x, size_t n, double largest, double temperature, int64_t least, int64_t* weights);

// ceilings.cpp
float read_memory(const float* numbers, size_t count, size_t streams, size_t bytes_ahead);
uint64_t multiply_add_f32(const PeakTask&);
uint64_t multiply_add_bf16(const PeakTask&);
uint64_t multiply_add_q8(const PeakTask&);

}  // namespace pagoda::PAGODA_ISA
