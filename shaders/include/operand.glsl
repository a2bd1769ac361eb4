// Declares one operand. Before including, define
//   NAME     what its functions begin with: NAME_at(t, p) reads a texel, NAME_put(t, p, v) writes
//   BINDING  its binding
//   TEXTURE  1: a 3D texture; 0: a buffer
//   KIND     CODES (a word of int8), REALS (four float32) or INTS (four int32)
//   ACCESS   readonly, writeonly, or nothing for both
//   READS    declare the functions that read
//   WRITES   declare the one that writes
//
// NAME_like(t, y, p) reads what lies at the cells of y's texel p, from any layout, broadcast.

#ifndef OPERAND_GLSL
#define OPERAND_GLSL
#define CODES 0
#define REALS 1
#define INTS 2
#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)
#endif

#if KIND == REALS
#define TEXEL vec4
#define LANES vec4
#define CELL float
#elif KIND == CODES
#define TEXEL int
#define LANES ivec4
#define CELL int
#else
#define TEXEL ivec4
#define LANES ivec4
#define CELL int
#endif

#if TEXTURE
#if KIND == REALS
layout(binding = BINDING, rgba32f) uniform ACCESS image3D JOIN(NAME, _texture);
#else
layout(binding = BINDING, r32i) uniform ACCESS iimage3D JOIN(NAME, _texture);
#endif
#else
layout(binding = BINDING, std430) ACCESS buffer JOIN(NAME, _buffer) { TEXEL JOIN(NAME, _texels)[]; };
#endif

#ifdef READS
#if TEXTURE && KIND == REALS
TEXEL JOIN(NAME, _at)(Tensor t, ivec4 p) { return imageLoad(JOIN(NAME, _texture), texture_at(t, p)); }
#elif TEXTURE
TEXEL JOIN(NAME, _at)(Tensor t, ivec4 p) { return imageLoad(JOIN(NAME, _texture), texture_at(t, p)).x; }
#else
TEXEL JOIN(NAME, _at)(Tensor t, ivec4 p) { return JOIN(NAME, _texels)[buffer_at(t, p)]; }
#endif

CELL JOIN(NAME, _cell)(Tensor t, ivec4 cell) {
#if KIND == CODES
    return unpack(JOIN(NAME, _at)(t, grid_of(t, cell)), lane_of(t, cell));
#else
    return JOIN(NAME, _at)(t, grid_of(t, cell))[lane_of(t, cell)];
#endif
}

TEXEL JOIN(NAME, _like)(Tensor t, Tensor y, ivec4 p) {
    if (t.shift == y.shift && t.size == y.size) {
        return JOIN(NAME, _at)(t, p);
    }
    // An axis of one cell stands for all; cells beyond the end are never looked at.
    LANES found;
    for (int lane = 0; lane < span(y); ++lane) {
        found[lane] = JOIN(NAME, _cell)(t, min(cell_at(y, p, lane), t.size - 1));
    }
#if KIND == CODES
    return pack(found);
#else
    return found;
#endif
}
#endif

#ifdef WRITES
void JOIN(NAME, _put)(Tensor t, ivec4 p, TEXEL v) {
#if TEXTURE && KIND == REALS
    imageStore(JOIN(NAME, _texture), texture_at(t, p), v);
#elif TEXTURE
    imageStore(JOIN(NAME, _texture), texture_at(t, p), ivec4(v));
#else
    JOIN(NAME, _texels)[buffer_at(t, p)] = v;
#endif
}
#endif

#undef NAME
#undef BINDING
#undef TEXTURE
#undef KIND
#undef ACCESS
#undef TEXEL
#undef LANES
#undef CELL
#undef READS
#undef WRITES
