"""The quantised blocks of GGUF files, written from the description of their layout (ggml-common.h)
and independent of src/numeric/gguf_block.cpp: exact rational arithmetic to decode, NumPy to encode.

  python3 scripts/lib/gguf_blocks.py      prints the table of src/numeric/gguf_block_test.cpp
"""
import struct
from fractions import Fraction

# type: (number in files, values, bytes)
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34),
         "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2)}


def half(data):
    return Fraction(struct.unpack("<e", data)[0])


def signed(byte):
    return byte - 256 if byte > 127 else byte


def six_bits(scales, b):
    """Scale and min of sub-block b of Q4_K and Q5_K."""
    if b < 4:
        return scales[b] & 63, scales[b + 4] & 63
    return ((scales[b + 4] & 15) | (scales[b - 4] >> 6) << 4,
            (scales[b + 4] >> 4) | (scales[b] >> 6) << 4)


def decode(kind, block):
    """The exact values of one block."""
    if kind == "Q4_0":
        d = half(block[:2])
        return [d * ((block[2 + j % 16] >> (4 * (j // 16)) & 15) - 8) for j in range(32)]
    if kind == "Q8_0":
        return [half(block[:2]) * signed(byte) for byte in block[2:34]]
    values = []
    if kind in ("Q4_K", "Q5_K"):
        d, dmin, scales = half(block[:2]), half(block[2:4]), block[4:16]
        codes = block[16:] if kind == "Q4_K" else block[48:]
        for i in range(256):
            q = codes[i // 64 * 32 + i % 32] >> (4 if i % 64 >= 32 else 0) & 15
            if kind == "Q5_K":
                q |= (block[16 + i % 32] >> (i // 32) & 1) << 4
            scale, low = six_bits(scales, i // 32)
            values.append(d * scale * q - dmin * low)
        return values
    d = half(block[208:210])
    for i in range(256):
        n, l = divmod(i, 128)
        low = block[64 * n + l % 64] >> (4 if l >= 64 else 0) & 15
        high = block[128 + 32 * n + l % 32] >> (2 * (l // 32)) & 3
        values.append(d * signed(block[192 + i // 16]) * ((low | high << 4) - 32))
    return values


def sample(kind):
    """A block of bytes that no symmetry hides: d = 0.0625, dmin = 0.03125."""
    block = bytearray((i * i * 31 + i * 73 + 41) >> 2 & 255 for i in range(TYPES[kind][2]))
    at = 208 if kind == "Q6_K" else 0
    block[at:at + 2] = struct.pack("<e", 0.0625)
    if kind in ("Q4_K", "Q5_K"):
        block[2:4] = struct.pack("<e", 0.03125)
    return bytes(block)


def encode(kind, rows):
    """Blocks of the float32 array `rows` [..., columns], as the simplest writer makes them."""
    import numpy as np
    values, size = TYPES[kind][1:]
    x = np.ascontiguousarray(rows, np.float32)
    if kind == "F32":
        return x.tobytes()
    if kind == "F16":
        return x.astype("<f2").tobytes()
    if kind == "BF16":
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    x = x.reshape(-1, values)
    out = np.zeros((len(x), size), np.uint8)

    def put_half(at, d):
        out[:, at:at + 2] = d.astype("<f2").view(np.uint8).reshape(-1, 2)
        return d.astype("<f2").astype(np.float32)

    def largest(a):
        return np.take_along_axis(a, np.abs(a).argmax(-1)[..., None], -1)[..., 0]

    def code(a, scale, bias, most):
        safe = np.where(scale == 0, 1, scale)
        return np.where(scale == 0, 0, np.clip(np.rint((a - bias) / safe), 0, most)).astype(np.uint8)

    if kind == "Q4_0":
        d = put_half(0, largest(x) / -8)[:, None]
        q = code(x, d, -8 * d, 15)
        out[:, 2:] = q[:, :16] | q[:, 16:] << 4
    elif kind == "Q8_0":
        d = put_half(0, np.abs(x).max(-1) / 127)[:, None]
        out[:, 2:] = code(x, d, -128 * d, 255) ^ 128
    elif kind in ("Q4_K", "Q5_K"):
        most = 15 if kind == "Q4_K" else 31
        g = x.reshape(-1, 8, 32)
        low = np.maximum(0, -g.min(-1))
        step = np.maximum(0, g.max(-1) + low) / most
        d, dmin = put_half(0, step.max(-1) / 63)[:, None], put_half(2, low.max(-1) / 63)[:, None]
        sc, m = code(step, d, 0, 63), code(low, dmin, 0, 63)
        out[:, 4:8] = sc[:, :4] & 63 | (sc[:, 4:] >> 4) << 6
        out[:, 8:12] = m[:, :4] & 63 | (m[:, 4:] >> 4) << 6
        out[:, 12:16] = sc[:, 4:] & 15 | (m[:, 4:] & 15) << 4
        q = code(g, (d * sc)[..., None], -(dmin * m)[..., None], most)
        c = q.reshape(-1, 4, 2, 32)
        if kind == "Q5_K":
            for b in range(8):
                out[:, 16:48] |= q[:, b] >> 4 << b
            c = c & 15
        out[:, -128:] = (c[:, :, 0] | c[:, :, 1] << 4).reshape(-1, 128)
    else:
        g = x.reshape(-1, 16, 16)
        step = largest(g) / -32
        d = put_half(208, largest(step) / -128)[:, None]
        sc = (code(step, d, -128 * d, 255) ^ 128).view(np.int8)
        out[:, 192:208] = sc.view(np.uint8)
        scale = (d * sc.astype(np.float32))[..., None]
        q = np.where(scale == 0, 32, code(g, scale, -32 * scale, 63)).reshape(-1, 2, 4, 32)
        low, high = q & 15, q >> 4
        for n in range(2):
            out[:, 64 * n:64 * n + 32] = low[:, n, 0] | low[:, n, 2] << 4
            out[:, 64 * n + 32:64 * n + 64] = low[:, n, 1] | low[:, n, 3] << 4
            out[:, 128 + 32 * n:160 + 32 * n] = (high[:, n, 0] | high[:, n, 1] << 2 |
                                                 high[:, n, 2] << 4 | high[:, n, 3] << 6)
    return out.tobytes()


if __name__ == "__main__":
    for kind in ("Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K"):
        values = decode(kind, sample(kind))
        weighted = sum(value * (i + 1) for i, value in enumerate(values))
        picked = [0, 1, 15, 16, 31] if len(values) == 32 else [0, 31, 32, 77, 100, 128, 191, 255]
        print(f"    {{GgufType::k{kind.replace('_K', 'K')}, {float(weighted)},\n     {{" +
              ", ".join(f"{{{i}, {float(values[i])}}}" for i in picked) + "}},")
