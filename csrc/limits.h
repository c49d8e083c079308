// What the machine can do at most, measured by the threads and with the instruction set that compute.
#pragma once

#include "threads.h"

namespace pagoda {

// Bytes a second that all threads together read from `num_bytes` of memory (at least 64 KB a thread): the best of several
// patterns, each the median of three readings. Throws std::bad_alloc.
double read_bandwidth(Threads& threads, size_t num_bytes);

// Products and additions a second of all threads, on operands in registers and in the nearest cache; the best of several.
double peak_operations(Threads& threads, Form form);

// Products and additions a second of that format's own kernel with everything it touches in the nearest cache: the best of
// several shapes. Throws std::invalid_argument where the instruction set has no such kernel.
double format_ceiling(Threads& threads, Format format);

}  // namespace pagoda
