#version 450
#extension GL_GOOGLE_include_directive : require
// Codes to real numbers: float32(code - zero point) * scale.

#include "codes.glsl"
#include "tensor.glsl"
#include "invocation.glsl"

layout(binding = 0, std140) uniform Params {
    Tensor x;
    Tensor scale;
    Tensor y;
    int texels;
    int axis;  // of N, C, H, W; -1: one scale
} u;

#define NAME x
#define BINDING 1
#define TEXTURE X_TEXTURE
#define KIND X_KIND
#define ACCESS readonly
#define READS
#include "operand.glsl"

#define NAME scale
#define BINDING 2
#define TEXTURE SCALE_TEXTURE
#define KIND REALS
#define ACCESS readonly
#define READS
#include "operand.glsl"

layout(binding = 3, std430) readonly buffer Zeros { int zeros[]; };

#define NAME y
#define BINDING 4
#define TEXTURE Y_TEXTURE
#define KIND REALS
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
    vec4 y;
    for (int lane = 0; lane < span(u.y); ++lane) {
        int at = u.axis < 0 ? 0 : min(cell_at(u.y, p, lane)[u.axis], u.y.size[u.axis] - 1);
        precise float real = float(x[lane] - zeros[at]) * scale_cell(u.scale, ivec4(0, 0, 0, at));
        y[lane] = real;
    }
    y_put(u.y, p, y);
}
