#version 450
#extension GL_GOOGLE_include_directive : require
// Real numbers to codes, one scale for all or one for each index of an axis.

#include "codes.glsl"
#include "tensor.glsl"
#include "invocation.glsl"
#include "requantize.glsl"

layout(binding = 0, std140) uniform Params {
    Tensor x;
    Tensor inverse;
    Tensor y;
    int texels;
    int axis;  // of N, C, H, W; -1: one scale
    int low, high;
} u;

#define NAME x
#define BINDING 1
#define TEXTURE X_TEXTURE
#define KIND REALS
#define ACCESS readonly
#define READS
#include "operand.glsl"

// 1 / scale, as the host rounds it.
#define NAME inverse
#define BINDING 2
#define TEXTURE INVERSE_TEXTURE
#define KIND REALS
#define ACCESS readonly
#define READS
#include "operand.glsl"

layout(binding = 3, std430) readonly buffer Zeros { int zeros[]; };

#define NAME y
#define BINDING 4
#define TEXTURE Y_TEXTURE
#define KIND CODES
#define ACCESS writeonly
#define WRITES
#include "operand.glsl"

// Told by its bits: what a clamp makes of NaN differs from device to device.
bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }

void main() {
    int i = invocation();
    if (i >= u.texels) {
        return;
    }
    ivec4 p = grid_at(u.y, i);
    vec4 x = x_like(u.x, u.y, p);
    ivec4 codes;
    for (int lane = 0; lane < span(u.y); ++lane) {
        int at = u.axis < 0 ? 0 : min(cell_at(u.y, p, lane)[u.axis], u.y.size[u.axis] - 1);
        int zero = zeros[at];
        precise float steps = x[lane] * inverse_cell(u.inverse, ivec4(0, 0, 0, at));
        codes[lane] = is_nan(x[lane]) ? zero : to_code(steps, Codes(zero, u.low, u.high));
    }
    y_put(u.y, p, pack(codes));
}
