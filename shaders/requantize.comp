#version 450
#extension GL_GOOGLE_include_directive : require
// Codes, or int32 sums, brought to another scale.

#include "codes.glsl"
#include "tensor.glsl"
#include "invocation.glsl"
#include "requantize.glsl"

layout(binding = 0, std140) uniform Params {
    Tensor x;
    Tensor y;
    int texels;
    int axis;  // of N, C, H, W; -1: one factor
    int x_zero;
    int y_zero, y_low, y_high;
} u;

#define NAME x
#define BINDING 1
#define TEXTURE X_TEXTURE
#define KIND X_KIND
#define ACCESS readonly
#define READS
#include "operand.glsl"

// (multiplier or the bits of r, shift) for each factor.
layout(binding = 2, std430) readonly buffer Factors { ivec2 factors[]; };

#define NAME y
#define BINDING 3
#define TEXTURE Y_TEXTURE
#define KIND CODES
#define ACCESS writeonly
#define WRITES
#include "operand.glsl"

void main() {
    int i = invocation();
    if (i >= u.texels) {
        return;
    }
    ivec4 p = grid_at(u.y, i);
#if X_KIND == CODES
    ivec4 x = unpack(x_like(u.x, u.y, p));
#else
    ivec4 x = x_like(u.x, u.y, p);
#endif
    ivec4 multiplier, shift;
    for (int lane = 0; lane < span(u.y); ++lane) {
        int at = u.axis < 0 ? 0 : min(cell_at(u.y, p, lane)[u.axis], u.y.size[u.axis] - 1);
        multiplier[lane] = factors[at].x;
        shift[lane] = factors[at].y;
    }
    Codes codes = Codes(u.y_zero, u.y_low, u.y_high);
    y_put(u.y, p, pack(requantize(x - u.x_zero, multiplier, shift, codes)));
}
