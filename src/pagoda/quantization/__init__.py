"""Weight formats: what the stored bytes mean. Their sizes are in `planning.formats`."""

from pagoda.quantization.dequantization import dequantize

__all__ = ["dequantize"]
