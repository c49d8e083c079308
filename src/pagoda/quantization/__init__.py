"""Weight formats: what the stored bytes mean. Their sizes are in `planning.formats`."""

from pagoda.quantization.dequantization import dequantize
from pagoda.quantization.fp8 import fp8_scales

__all__ = ["dequantize", "fp8_scales"]
