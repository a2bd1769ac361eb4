#version 450
#extension GL_GOOGLE_include_directive : require
// Dense convolution of codes, and grouped where groups are whole texels: dot products of words.

#include "dot.glsl"
#include "tensor.glsl"
#include "invocation.glsl"
#include "requantize.glsl"
#include "conv.glsl"

layout(constant_id = 1) const bool W_ZERO = false;

// [O/4][Kh][Kw][C/4], a word of input channels for each of four outputs.
layout(binding = 2, std430) readonly buffer Weights { ivec4 weights[]; };

void main() {
    int i = invocation();
    if (i >= u.texels) {
        return;
    }
    ivec4 p = grid_at(u.y, i);
    int first = p.y / u.group_outputs * u.group_inputs;
    int padding = pack(ivec4(u.x_zero));
    ivec4 acc = channels[p.y].bias;
    int sum_x = 0;
    int k = p.y * u.kernel_h * u.kernel_w * u.group_inputs;
    for (int kh = 0; kh < u.kernel_h; ++kh) {
        int h = row_of(p.z, kh);
        for (int kw = 0; kw < u.kernel_w; ++kw) {
            int w = column_of(p.w, kw);
            bool padded = h < 0 || h >= u.x.size.z || w < 0 || w >= u.x.size.w;
            for (int c = 0; c < u.group_inputs; ++c, ++k) {
                int word = padded ? padding : x_at(u.x, ivec4(p.x, first + c, h, w));
                acc += dots(word, weights[k]);
                if (W_ZERO) {
                    sum_x += dot4(word, ones(u.channels_in - 4 * c));
                }
            }
        }
    }
    if (W_ZERO) {
        acc -= channels[p.y].w_zero * sum_x;
    }
    y_put(u.y, p, pack(requantize(acc, p.y, Codes(u.y_zero, u.y_low, u.y_high))));
}
