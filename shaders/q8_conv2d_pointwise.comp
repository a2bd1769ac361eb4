#version 450
#extension GL_GOOGLE_include_directive : require
// Convolution of codes with a kernel of one cell: every pixel a row of a matrix product.

#include "dot.glsl"
#include "tensor.glsl"
#include "invocation.glsl"
#include "requantize.glsl"
#include "conv.glsl"

layout(constant_id = 1) const bool W_ZERO = false;

// [O/4][C/4], a word of input channels for each of four outputs.
layout(binding = 2, std430) readonly buffer Weights { ivec4 weights[]; };

void main() {
    int i = invocation();
    if (i >= u.texels) {
        return;
    }
    ivec4 p = grid_at(u.y, i);
    ivec4 acc = channels[p.y].bias;
    int sum_x = 0;
    int k = p.y * u.group_inputs;
    for (int c = 0; c < u.group_inputs; ++c, ++k) {
        int word = x_at(u.x, ivec4(p.x, c, p.z, p.w));
        acc += dots(word, weights[k]);
        if (W_ZERO) {
            sum_x += dot4(word, ones(u.channels_in - 4 * c));
        }
    }
    if (W_ZERO) {
        acc -= channels[p.y].w_zero * sum_x;
    }
    y_put(u.y, p, pack(requantize(acc, p.y, Codes(u.y_zero, u.y_low, u.y_high))));
}
