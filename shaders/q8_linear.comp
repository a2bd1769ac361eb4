#version 450
#extension GL_GOOGLE_include_directive : require
// Rows of codes times a matrix: x and y are packed along their last axis.

#include "dot.glsl"
#include "tensor.glsl"
#include "invocation.glsl"
#include "requantize.glsl"

layout(constant_id = 1) const bool W_ZERO = false;

layout(binding = 0, std140) uniform Params {
    Tensor x;
    Tensor y;
    int texels;
    int y_zero, y_low, y_high;
} u;

#define NAME x
#define BINDING 1
#define TEXTURE X_TEXTURE
#define KIND CODES
#define ACCESS readonly
#define READS
#include "operand.glsl"

// [O/4][K/4], a word of inputs for each of four outputs.
layout(binding = 2, std430) readonly buffer Weights { ivec4 weights[]; };

#define CHANNELS_BINDING 3
#include "channels.glsl"

#define NAME y
#define BINDING 4
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
    ivec4 acc = channels[p.w].bias;
    int sum_x = 0;
    int words = u.x.grid.w;
    for (int k = 0; k < words; ++k) {
        int word = x_at(u.x, ivec4(p.xyz, k));
        acc += dots(word, weights[p.w * words + k]);
        if (W_ZERO) {
            sum_x += dot4(word, ones(u.x.size.w - 4 * k));
        }
    }
    if (W_ZERO) {
        acc -= channels[p.w].w_zero * sum_x;
    }
    y_put(u.y, p, pack(requantize(acc, p.w, Codes(u.y_zero, u.y_low, u.y_high))));
}
