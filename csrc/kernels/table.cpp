#include "table.h"

#define PAGODA_TEXT_OF(name) #name
#define PAGODA_NAME_OF(name) PAGODA_TEXT_OF(name)

namespace pagoda::PAGODA_ISA {

const Kernels* kernels();

// Filled by the first call and not when the module is loaded: it takes instructions that the machine may lack.
const Kernels* kernels() {
  static const Kernels table = [] {
    Kernels t{};
    t.name = PAGODA_NAME_OF(PAGODA_ISA);
    for (int i = 0; i < kNumFormats; ++i) {
      const Format format = static_cast<Format>(i);
      const bool dense = input_form(format) != Form::q8;
      t.linear[i] = dense ? linear_dense(format) : linear_quantized(format);
      t.unpack_row[i] = dense ? unpack_dense(format) : unpack_quantized(format);
    }
    t.rms_norm = rms_norm;
    t.layer_norm = layer_norm;
    t.add = add;
    t.write_row = write_row;
    t.gated_activation = gated_activation;
    t.activation = activation;
    t.rotate = rotate;
    for (int i = 0; i < kNumKVFormats; ++i) {
      t.store_kv[i] = store_kv(static_cast<KVFormat>(i));
      t.attend[i] = attend(static_cast<KVFormat>(i));
    }
    t.attention_scratch = attention_scratch;
    t.merge = merge;
    t.finish = finish;
    t.chunk_maxima = chunk_maxima;
    t.collect = collect;
    t.weigh = weigh;
    t.read_memory = read_memory;
    t.multiply_add[static_cast<int>(Form::f32)] = multiply_add_f32;
    t.multiply_add[static_cast<int>(Form::bf16)] = multiply_add_bf16;
    t.multiply_add[static_cast<int>(Form::q8)] = multiply_add_q8;
    return t;
  }();
  return &table;
}

}  // namespace pagoda::PAGODA_ISA
