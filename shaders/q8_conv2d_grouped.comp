#version 450
#extension GL_GOOGLE_include_directive : require
// Convolution of codes with any groups, cell by cell: where groups do not fill whole texels.

#if BYTES
#extension GL_EXT_shader_8bit_storage : require
#endif

#include "codes.glsl"
#include "tensor.glsl"
#include "invocation.glsl"
#include "requantize.glsl"
#include "conv.glsl"

// [O][Kh][Kw][C/groups], one after the other.
#if BYTES
layout(binding = 2, std430) readonly buffer Weights { int8_t weights[]; };
int weight(int k) { return int(weights[k]); }
#else
layout(binding = 2, std430) readonly buffer Weights { int weights[]; };
int weight(int k) { return unpack(weights[k >> 2], k & 3); }
#endif

int sum_of(ivec4 p, int o, int w_zero) {
    int first = o / u.group_outputs * u.group_inputs;
    int k = o * u.kernel_h * u.kernel_w * u.group_inputs;
    int sum = 0;
    for (int kh = 0; kh < u.kernel_h; ++kh) {
        int h = row_of(p.z, kh);
        for (int kw = 0; kw < u.kernel_w; ++kw) {
            int w = column_of(p.w, kw);
            bool padded = h < 0 || h >= u.x.size.z || w < 0 || w >= u.x.size.w;
            for (int c = 0; c < u.group_inputs; ++c, ++k) {
                if (!padded) {
                    int x = x_cell(u.x, ivec4(p.x, first + c, h, w));
                    sum += (x - u.x_zero) * (weight(k) - w_zero);
                }
            }
        }
    }
    return sum;
}

void main() {
    int i = invocation();
    if (i >= u.texels) {
        return;
    }
    ivec4 p = grid_at(u.y, i);
    ivec4 acc = channels[p.y].bias;
    for (int lane = 0; lane < span(u.y); ++lane) {
        int o = 4 * p.y + lane;
        if (o < u.y.size.y) {
            acc[lane] += sum_of(p, o, channels[p.y].w_zero[lane]);
        }
    }
    y_put(u.y, p, pack(requantize(acc, p.y, Codes(u.y_zero, u.y_low, u.y_high))));
}
