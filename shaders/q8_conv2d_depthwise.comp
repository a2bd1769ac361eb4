#version 450
#extension GL_GOOGLE_include_directive : require
// Convolution of codes with a kernel for each channel: four channels, four products a tap.

#include "codes.glsl"
#include "tensor.glsl"
#include "invocation.glsl"
#include "requantize.glsl"
#include "conv.glsl"

// [C/4][Kh][Kw], a word of four channels.
layout(binding = 2, std430) readonly buffer Weights { int weights[]; };

void main() {
    int i = invocation();
    if (i >= u.texels) {
        return;
    }
    ivec4 p = grid_at(u.y, i);
    ivec4 acc = channels[p.y].bias;
    ivec4 w_zero = channels[p.y].w_zero;
    int k = p.y * u.kernel_h * u.kernel_w;
    for (int kh = 0; kh < u.kernel_h; ++kh) {
        int h = row_of(p.z, kh);
        for (int kw = 0; kw < u.kernel_w; ++kw, ++k) {
            int w = column_of(p.w, kw);
            if (h >= 0 && h < u.x.size.z && w >= 0 && w < u.x.size.w) {
                ivec4 x = unpack(x_at(u.x, ivec4(p.x, p.y, h, w)));
                acc += (x - u.x_zero) * (unpack(weights[k]) - w_zero);
            }
        }
    }
    y_put(u.y, p, pack(requantize(acc, p.y, Codes(u.y_zero, u.y_low, u.y_high))));
}
