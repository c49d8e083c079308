"""From stored rows to the planes of `planning.cuda_formats`: bytes of files repacked, dense numbers quantized."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from pagoda.ops.cuda.weights import PackedMatrix
from pagoda.planning.cuda_formats import CUDA_FORMATS

INT8_MAX, FP8_MAX = 127.0, 448.0
INT4_GROUP = 128
FP16_MAX = 65504.0

Planes = Mapping[str, torch.Tensor]


def allocate(format_name: str, shape: tuple[int, int], device: torch.device) -> PackedMatrix:
    """A matrix [out, in] whose planes are still to be filled."""
    planes = {
        plane.name: torch.empty(plane.shape(*shape), dtype=getattr(torch, plane.number), device=device)
        for plane in CUDA_FORMATS[format_name].planes
    }
    return PackedMatrix(format_name, shape, **planes)


def repack(rows: torch.Tensor, matrix: PackedMatrix, first: int) -> None:
    """Rows as a file has them, uint8 [rows, bytes of a row], into the matrix from row `first` on; of formats whose scales lie
    elsewhere, the codes alone."""
    _REPACKING.get(matrix.format, _codes)(rows, _part(matrix, first, len(rows)))


def quantize_rows(values: torch.Tensor, matrix: PackedMatrix, first: int) -> None:
    """Dense rows [rows, in] into the matrix, of format int8, int4 or fp8, from row `first` on."""
    _QUANTIZING[matrix.format](values, _part(matrix, first, len(values)))


def _part(matrix: PackedMatrix, first: int, count: int) -> Planes:
    return {name: plane[first : first + count] for name, plane in matrix.planes.items()}


def _codes(rows: torch.Tensor, planes: Planes) -> None:
    planes["codes"].copy_(rows)


# ── Blocks of 32 (see `quantization.blocks_of_32` for what the bytes are). ──


def _q4_0(rows: torch.Tensor, planes: Planes) -> None:
    blocks = rows.reshape(len(rows), -1, 18)
    planes["scales"].copy_(_numbers(blocks, 0))
    planes["codes"].copy_(_words(_two_halves(blocks[:, :, 2:])))


def _q4_1(rows: torch.Tensor, planes: Planes) -> None:
    blocks = rows.reshape(len(rows), -1, 20)
    planes["scales"].copy_(_numbers(blocks, 0))
    planes["mins"].copy_(_numbers(blocks, 2))
    planes["codes"].copy_(_words(_two_halves(blocks[:, :, 4:])))


def _q5_0(rows: torch.Tensor, planes: Planes) -> None:
    blocks = rows.reshape(len(rows), -1, 22)
    planes["scales"].copy_(_numbers(blocks, 0))
    _high(_bits_of(blocks[:, :, 2:6]), 1, planes["high"])
    planes["codes"].copy_(_words(_two_halves(blocks[:, :, 6:])))


def _q5_1(rows: torch.Tensor, planes: Planes) -> None:
    blocks = rows.reshape(len(rows), -1, 24)
    planes["scales"].copy_(_numbers(blocks, 0))
    planes["mins"].copy_(_numbers(blocks, 2))
    _high(_bits_of(blocks[:, :, 4:8]), 1, planes["high"])
    planes["codes"].copy_(_words(_two_halves(blocks[:, :, 8:])))


def _q8_0(rows: torch.Tensor, planes: Planes) -> None:
    blocks = rows.reshape(len(rows), -1, 34)
    planes["scales"].copy_(_numbers(blocks, 0))
    planes["codes"].copy_(blocks[:, :, 2:].reshape(len(rows), -1))


# ── Blocks of 256 (see `quantization.k_quants`). ──


def _q4_k(rows: torch.Tensor, planes: Planes) -> None:
    blocks = rows.reshape(len(rows), -1, 144)
    _two_levels(blocks, planes)
    planes["codes"].copy_(_words(_two_halves(blocks[:, :, 16:144].reshape(len(rows), -1, 32))))


def _q5_k(rows: torch.Tensor, planes: Planes) -> None:
    blocks = rows.reshape(len(rows), -1, 176)
    _two_levels(blocks, planes)
    planes["codes"].copy_(_words(_two_halves(blocks[:, :, 48:176].reshape(len(rows), -1, 32))))
    # Bit i of byte j belongs to input j of sub-block i.
    bits = (blocks[:, :, None, 16:48] >> _shifts(1, rows.device)[:, None]) & 1  # [rows, blocks, 8, 32]
    _high(bits.reshape(len(rows), -1), 1, planes["high"])


def _q6_k(rows: torch.Tensor, planes: Planes) -> None:
    blocks = rows.reshape(len(rows), -1, 210)
    n = len(rows)
    planes["super_scales"].copy_(_numbers(blocks, 208))
    planes["scales"].copy_(blocks[:, :, 192:208].reshape(n, -1).view(torch.int8))
    planes["codes"].copy_(_words(_two_halves(blocks[:, :, :128].reshape(n, -1, 64))))
    # Bits 2i and 2i + 1 of byte j belong to input j of quarter i of its half of the block.
    upper = blocks[:, :, 128:192].reshape(n, -1, 1, 32)
    bits = (upper >> _shifts(2, rows.device)[:, None]) & 3  # [rows, halves, 4, 32]
    _high(bits.reshape(n, -1), 2, planes["high"])


def _two_levels(blocks: torch.Tensor, planes: Planes) -> None:
    """Super-scales, and eight scales and minima of 6 bits: four of each whole, of the others the upper two bits above those."""
    n = len(blocks)
    planes["super_scales"].copy_(_numbers(blocks, 0))
    planes["super_mins"].copy_(_numbers(blocks, 2))
    first, second, third = blocks[:, :, 4:8], blocks[:, :, 8:12], blocks[:, :, 12:16]
    planes["scales"].copy_(torch.cat([first & 63, (third & 15) | ((first >> 6) << 4)], 2).reshape(n, -1))
    planes["mins"].copy_(torch.cat([second & 63, (third >> 4) | ((second >> 6) << 4)], 2).reshape(n, -1))


def _two_halves(packed: torch.Tensor) -> torch.Tensor:
    """[rows, count, n] bytes → [rows, count × 2n] codes: the low nibbles of n bytes, then their high ones."""
    return torch.cat([packed & 15, packed >> 4], 2).reshape(len(packed), -1)


def _words(codes: torch.Tensor) -> torch.Tensor:
    """Codes of 4 bits, uint8 [rows, in] → the `codes` plane, int32 [rows, in / 8]."""
    pairs = codes.reshape(len(codes), -1, 4, 2, 4)  # [rows, units, byte of a word, its half, word]
    return _in_words(pairs[:, :, :, 0] | (pairs[:, :, :, 1] << 4)).view(torch.int32)


def _high(bits: torch.Tensor, width: int, plane: torch.Tensor) -> None:
    """What codes have above 4 bits, `width` bits each, uint8 [rows, in], into the `high` plane."""
    parts = bits.reshape(len(bits), -1, width, 8 // width, 4)  # [rows, units, byte of a number, place in it, number]
    places = _shifts(width, bits.device)[:, None]
    plane.copy_(_in_words((parts << places).sum(3, dtype=torch.uint8)).view(plane.dtype))


def _in_words(parts: torch.Tensor) -> torch.Tensor:
    """[rows, units, byte of a number, number] → bytes [rows, …], the numbers one after the other."""
    return parts.transpose(2, 3).reshape(len(parts), -1)


def _shifts(width: int, device: torch.device) -> torch.Tensor:
    return torch.arange(0, 8, width, dtype=torch.uint8, device=device)


def _bits_of(packed: torch.Tensor) -> torch.Tensor:
    """Bytes [rows, …] → their bits [rows, 8 for each], the lowest first."""
    return ((packed.reshape(len(packed), -1, 1) >> _shifts(1, packed.device)) & 1).reshape(len(packed), -1)


def _numbers(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The fp16 number at that byte of each block [rows, count, bytes]: [rows, count]."""
    return blocks[:, :, at : at + 2].contiguous().view(torch.float16).squeeze(-1)


# ── Quantization while loading. ──


def _int8(rows: torch.Tensor, planes: Planes) -> None:
    """scale × code, codes from −127 to 127; the scale is a 127th of the row's largest magnitude."""
    scaled = _scaled(rows, INT8_MAX, planes["scales"])
    planes["codes"].view(torch.int8).copy_(scaled.round_().clamp_(-INT8_MAX, INT8_MAX))


def _fp8(rows: torch.Tensor, planes: Planes) -> None:
    """scale × E4M3; the row's largest magnitude becomes the format's largest number."""
    scaled = _scaled(rows, FP8_MAX, planes["scales"])
    planes["codes"].view(torch.float8_e4m3fn).copy_(scaled.clamp_(-FP8_MAX, FP8_MAX))


def _int4(rows: torch.Tensor, planes: Planes) -> None:
    """scale × (code − 8) in groups of 128 inputs, as `quantization.quantize` makes Q4_0: the number of largest magnitude
    becomes code 0, which is −8, so the scale may be negative."""
    n, width = rows.shape
    values = torch.nn.functional.pad(rows.float(), (0, -width % INT4_GROUP)).view(n, -1, INT4_GROUP)
    highest, lowest = values.amax(-1), values.amin(-1)
    scales = torch.where(highest > -lowest, highest, lowest) / -8
    planes["scales"].copy_(torch.where(scales.isinf(), scales, scales.clamp(-FP16_MAX, FP16_MAX)))
    scaled = (values * _inverse(planes["scales"].float())[:, :, None]).add_(8.5).clamp_(0, 15)
    codes = scaled.to(torch.uint8).view(n, -1)[:, :width]  # which cuts off what is behind the point
    planes["codes"].copy_(_words(codes))


def _scaled(rows: torch.Tensor, largest: float, scales: torch.Tensor) -> torch.Tensor:
    """Each row divided by its scale, float32; scales [rows, 1] get them."""
    values = rows.float()
    scales.copy_(values.abs().amax(-1, keepdim=True) / largest)
    return values * _inverse(scales)


def _inverse(scales: torch.Tensor) -> torch.Tensor:
    """0 where the scale is 0, as all codes are then."""
    return torch.where(scales == 0, 0, 1 / scales)


_Pack = Callable[[torch.Tensor, Planes], None]
_REPACKING: dict[str, _Pack] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
_QUANTIZING: dict[str, _Pack] = {"int8": _int8, "int4": _int4, "fp8": _fp8}
