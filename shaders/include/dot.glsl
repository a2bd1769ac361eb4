// Sums of products of packed codes; DOT: by the device's instruction. Include it first.

#if DOT
#extension GL_EXT_integer_dot_product : require
#endif

#include "codes.glsl"

#if DOT
int dot4(int a, int b) { return dotPacked4x8EXT(a, b); }
#else
int dot4(int a, int b) {
    ivec4 products = unpack(a) * unpack(b);
    return products.x + products.y + products.z + products.w;
}
#endif

// One word of input with the words of four outputs.
ivec4 dots(int x, ivec4 w) { return ivec4(dot4(x, w.x), dot4(x, w.y), dot4(x, w.z), dot4(x, w.w)); }

// A one for each of the first `count` cells of a texel.
int ones(int count) { return count >= 4 ? 0x01010101 : (1 << 8 * count) - 1 & 0x01010101; }
