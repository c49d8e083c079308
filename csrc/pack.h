// From rows as files store them to tiles (format.h).
#pragma once

#include "format.h"

namespace pagoda {

// Packs tiles [first_tile, first_tile + num_tiles) of a matrix of num_rows rows with k inputs. `stored` is row 0, rows
// follow each other row_bytes apart; `tiles` is where the first of these tiles goes, the next one tile_stride further. Lanes beyond num_rows are zeros. No
// number changes. k is a multiple of block_elements(format).
void pack_tiles(Format format, const uint8_t* stored, size_t row_bytes, size_t num_rows, size_t k, size_t first_tile,
                size_t num_tiles, uint8_t* tiles, size_t tile_stride);

}  // namespace pagoda
