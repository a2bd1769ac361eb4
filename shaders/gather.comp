#version 450
#extension GL_GOOGLE_include_directive : require
// Cells moved about, from any representation to any: transition, view, permute, slice, pad, cat.
//
// The region of y that is written starts at `origin`. A cell of it is, counted from there, the
// cell of x with the same row-major number (numbered), or x[a] = cell[order[a]] * step[a] +
// offset[a]; what falls outside x is made up by `border`. KEEP: cells of y beside the region stay.

#include "codes.glsl"
#include "tensor.glsl"
#include "invocation.glsl"

layout(binding = 0, std140) uniform Params {
    Tensor x;
    Tensor y;
    Tensor region;  // its texels are those of y that it touches
    ivec4 origin;
    ivec4 order;
    ivec4 step;
    ivec4 offset;
    int texels;
    int numbered;
    int border;
    int fill;  // a code, or the bits of a real number
} u;

const int CONSTANT = 0;
const int REFLECT = 1;
const int REPLICATE = 2;
const int CIRCULAR = 3;

#define NAME x
#define BINDING 1
#define TEXTURE X_TEXTURE
#define KIND X_KIND
#define ACCESS readonly
#define READS
#include "operand.glsl"

#define NAME y
#define BINDING 2
#define TEXTURE Y_TEXTURE
#define KIND X_KIND
#define WRITES
#if KEEP
#define ACCESS
#define READS
#else
#define ACCESS writeonly
#endif
#include "operand.glsl"

#if X_KIND == REALS
#define SCALAR float
#define LANES vec4
#define FROM_BITS(bits) intBitsToFloat(bits)
#else
#define SCALAR int
#define LANES ivec4
#define FROM_BITS(bits) (bits)
#endif

// Where an index lies after it left 0 .. size - 1.
int bordered(int i, int size) {
    if (u.border == REPLICATE) {
        return clamp(i, 0, size - 1);
    }
    if (u.border == CIRCULAR) {
        // Of a negative number % is undefined; no margin is wider than x.
        return (i + size) % size;
    }
    return size - 1 - abs(size - 1 - abs(i));
}

SCALAR source(ivec4 cell) {
    ivec4 from;
    if (u.numbered != 0) {
        from = cell_numbered(u.x, number_of(u.region, cell));
    } else {
        for (int a = 0; a < 4; ++a) {
            from[a] = cell[u.order[a]] * u.step[a] + u.offset[a];
        }
    }
    if (!inside(u.x, from)) {
        if (u.border == CONSTANT) {
            return FROM_BITS(u.fill);
        }
        for (int a = 0; a < 4; ++a) {
            from[a] = bordered(from[a], u.x.size[a]);
        }
    }
    return x_cell(u.x, from);
}

void main() {
    int i = invocation();
    if (i >= u.texels) {
        return;
    }
    ivec4 p = grid_at(u.region, i) + grid_of(u.y, u.origin);
#if !KEEP
    LANES found = LANES(0);
#elif X_KIND == CODES
    LANES found = unpack(y_at(u.y, p));
#else
    LANES found = y_at(u.y, p);
#endif
    for (int lane = 0; lane < span(u.y); ++lane) {
        ivec4 cell = cell_at(u.y, p, lane) - u.origin;
        if (inside(u.region, cell)) {
            found[lane] = source(cell);
        }
    }
#if X_KIND == CODES
    y_put(u.y, p, pack(found));
#else
    y_put(u.y, p, found);
#endif
}
