"""Tiles of quantized matrices as numbers: what the planes of `planning.cuda_formats` mean.

A number is scale × code − shift. A row's codes lie in units, and a unit has parts of so many lanes: four words have eight parts
of four lanes, which are masked out of the words; 8 bytes are one part of eight. Lane l of part p of unit u is of the row's
input (u × parts + p) × lanes + l. A product multiplies each part with its own columns of the activations.

planes: of the matrix, as a kernel gets them from `PackedMatrix.arguments`:
(codes_ptr, high_ptr, scales_ptr, mins_ptr, super_scales_ptr, super_mins_ptr, exponent).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.constexpr_function
def has_bytes(name):
    """Whether codes are bytes."""
    return name in ("Q8_0", "int8", "fp8", "fp8_block")


@triton.constexpr_function
def parts_of(name):
    """Parts of a unit."""
    return 1 if has_bytes(name) else 8


@triton.constexpr_function
def lanes_of(name):
    """Inputs of a part."""
    return 8 if has_bytes(name) else 4


@triton.constexpr_function
def inputs_of_scale(name):
    """Inputs that share a scale; 0: all of a row."""
    return {"Q6_K": 16, "int4": 128, "fp8_block": 128, "int8": 0, "fp8": 0}.get(name, 32)


@triton.constexpr_function
def parts_of_scale(name):
    """Parts of a unit that share a scale."""
    return 4 if name == "Q6_K" else parts_of(name)


@triton.constexpr_function
def is_fp8(name):
    return name in ("fp8", "fp8_block")


@triton.constexpr_function
def high_bits(name):
    """Bits of a code above the 4 in the words."""
    return {"Q5_0": 1, "Q5_1": 1, "Q5_K": 1, "Q6_K": 2}.get(name, 0)


@triton.constexpr_function
def centre_of(name):
    """What is subtracted of a code in a word."""
    return {"Q4_0": 8, "int4": 8, "Q5_0": 16, "Q6_K": 32}.get(name, 0)


@triton.constexpr_function
def place_of(name, part):
    """The bit that a part's codes begin at when they are masked out, once the last three parts are shifted to the front."""
    return 0 if has_bytes(name) else 4 * part if part < 5 else 4 * (part - 5)


@triton.jit
def load_units(planes, rows, is_row, start, num_units, BU: tl.constexpr, FORMAT: tl.constexpr):
    """Words [BN, BU, 4] or bytes [BN, BU, 8] of rows [BN] and the units from `start` on; and, of the same shape, what codes
    have above 4 bits (of formats without such bits, anything). is_row [BN]: which rows there are. num_units: of a row. What is
    beyond them is 0.

    They are loaded as rows of numbers, for the compiler to see the order in which they lie, and a unit's to one thread: its
    words are 16 bytes; of bytes it would take more.
    """
    SIZE: tl.constexpr = 8 if has_bytes(FORMAT) else 4
    within = start * SIZE + tl.arange(0, BU * SIZE)
    inside = is_row[:, None] & (within < num_units * SIZE)[None, :]
    at = tl.max_contiguous(rows.to(tl.int64)[:, None] * (num_units * SIZE) + within[None, :], [1, SIZE])
    words = tl.load(planes[0] + at, mask=inside, other=0, eviction_policy="evict_first")
    if not has_bytes(FORMAT):
        words = words.to(tl.uint32, bitcast=True)
    high = words
    if high_bits(FORMAT) > 0:
        high = tl.load(planes[1] + at, mask=inside, other=0, eviction_policy="evict_first").to(tl.uint32)
    shape: tl.constexpr = [rows.shape[0], BU, SIZE]
    return tl.reshape(words, shape), tl.reshape(high, shape)


@triton.jit
def inputs_of(start, PART: tl.constexpr, BU: tl.constexpr, FORMAT: tl.constexpr):
    """The inputs that one part of the units from `start` on is of: [BU × lanes]."""
    LANES: tl.constexpr = lanes_of(FORMAT)
    within = tl.arange(0, BU * LANES)
    return ((start + within // LANES) * parts_of(FORMAT) + PART) * LANES + within % LANES


@triton.jit
def codes_of(words, high, exponent, PART: tl.constexpr, FORMAT: tl.constexpr, HAS_FP8: tl.constexpr):
    """The codes of one part of units, less their centre, times 2^`place_of` the part: float32 [BN, BU, lanes].

    exponent: the bits of the float 2^23. HAS_FP8: the GPU converts E4M3 itself (from capability 8.9 on).
    """
    if is_fp8(FORMAT) and HAS_FP8:
        codes = words.to(tl.float8e4nv, bitcast=True).to(tl.float16).to(tl.float32)
    elif is_fp8(FORMAT):
        codes = _from_e4m3(words)
    elif has_bytes(FORMAT):
        codes = words.to(tl.int8, bitcast=True).to(tl.float32)
    else:
        # As the fraction of a float that is 2^23 and more: two operations a code, where shift, mask and conversion are three,
        # and conversions have few units.
        PLACE: tl.constexpr = place_of(FORMAT, PART)
        bits = (words if PART < 5 else words >> 20) & (15 << PLACE)
        if high_bits(FORMAT) > 0:
            bits |= ((high >> (high_bits(FORMAT) * PART)) & (2 ** high_bits(FORMAT) - 1)) << (PLACE + 4)
        codes = (bits | exponent).to(tl.float32, bitcast=True) - (2.0**23 + centre_of(FORMAT) * 2.0**PLACE)
    return codes


@triton.jit
def _from_e4m3(words):
    """By bits: shifted to where fp16 has exponent and fraction, the number is 2^8 too small, as the two formats' biases are
    7 and 15, also where it is subnormal. All ones are not a number."""
    wide = words.to(tl.int16)
    half = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
    return tl.where((wide & 0x7F) == 0x7F, float("nan"), half.to(tl.float16, bitcast=True).to(tl.float32) * 256.0)


@triton.jit
def scales_of(planes, rows, units, num_units, inside, PART: tl.constexpr, FORMAT: tl.constexpr):
    """float32 [BN, BU] of that part of the units, of formats whose rows have several scales."""
    at = _groups(rows >> 7 if FORMAT == "fp8_block" else rows, units, num_units, PART, inputs_of_scale(FORMAT), FORMAT)
    scales = tl.load(planes[2] + at, mask=inside, other=0).to(tl.float32)
    if planes[4] is not None:
        at = _groups(rows, units, num_units, PART, 256, FORMAT)
        scales *= tl.load(planes[4] + at, mask=inside, other=0.0).to(tl.float32)
    return scales


@triton.jit
def row_scales_of(planes, rows, is_row):
    """float32 [BN], of formats whose rows have one."""
    return tl.load(planes[2] + rows, mask=is_row, other=0.0)


@triton.jit
def shifts_of(planes, rows, units, num_units, inside, FORMAT: tl.constexpr):
    """float32 [BN, BU], of formats that have minima."""
    at = _groups(rows, units, num_units, 0, inputs_of_scale(FORMAT), FORMAT)
    shifts = tl.load(planes[3] + at, mask=inside, other=0).to(tl.float32)
    if planes[5] is None:
        shifts = -shifts  # a minimum is added
    else:
        at = _groups(rows, units, num_units, 0, 256, FORMAT)
        shifts *= tl.load(planes[5] + at, mask=inside, other=0.0).to(tl.float32)
    return shifts


@triton.jit
def _groups(rows, units, num_units, PART: tl.constexpr, INPUTS: tl.constexpr, FORMAT: tl.constexpr):
    """Where in their plane the numbers are that go with groups of so many inputs: [BN, BU]."""
    LANES: tl.constexpr = lanes_of(FORMAT)
    UNIT: tl.constexpr = parts_of(FORMAT) * LANES
    groups = (units * UNIT + PART * LANES) // INPUTS
    return rows.to(tl.int64)[:, None] * tl.cdiv(num_units * UNIT, INPUTS) + groups[None, :]


@triton.jit
def numbers_of(
    words,
    high,
    planes,
    rows,
    is_row,
    units,
    num_units,
    PART: tl.constexpr,
    FORMAT: tl.constexpr,
    HAS_FP8: tl.constexpr,
):
    """One part of units as numbers, float32 [BN, BU, lanes]: exactly those of `quantization.dequantize`. is_row [BN]: which
    rows there are."""
    inside = is_row[:, None] & (units < num_units)[None, :]
    codes = codes_of(words, high, planes[6], PART, FORMAT, HAS_FP8)
    if inputs_of_scale(FORMAT) == 0:
        numbers = codes * row_scales_of(planes, rows, is_row)[:, None, None]
    else:
        scales = scales_of(planes, rows, units, num_units, inside, PART, FORMAT) * 0.5 ** place_of(FORMAT, PART)
        numbers = codes * scales[:, :, None]
        if planes[3] is not None:
            numbers -= shifts_of(planes, rows, units, num_units, inside, FORMAT)[:, :, None]
    return numbers
