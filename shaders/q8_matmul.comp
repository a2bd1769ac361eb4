#version 450
#extension GL_GOOGLE_include_directive : require
// A product of two matrices of codes: a is packed along its rows' cells, b along its columns',
// so that a word of either holds four terms of the sum; y is packed along its last axis.

#include "dot.glsl"
#include "tensor.glsl"
#include "invocation.glsl"
#include "requantize.glsl"

layout(binding = 0, std140) uniform Params {
    Tensor a;
    Tensor b;
    Tensor y;
    int texels;
    int a_zero, b_zero;
    int multiplier, shift;
    int y_zero, y_low, y_high;
    int a_rows, b_rows, y_rows;  // the axis that rows lie along: C or H
} u;

#define NAME a
#define BINDING 1
#define TEXTURE A_TEXTURE
#define KIND CODES
#define ACCESS readonly
#define READS
#include "operand.glsl"

#define NAME b
#define BINDING 2
#define TEXTURE B_TEXTURE
#define KIND CODES
#define ACCESS readonly
#define READS
#include "operand.glsl"

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
    // A batch axis of one cell stands for all.
    ivec4 at_a = min(p, u.a.size - 1);
    ivec4 at_b = min(p, u.b.size - 1);
    at_a[u.a_rows] = p[u.y_rows];
    ivec4 columns = min(4 * p.w + ivec4(0, 1, 2, 3), u.b.size.w - 1);
    ivec4 acc = ivec4(0);
    ivec4 sum_b = ivec4(0);
    int sum_a = 0;
    int terms = u.a.size.w;
    for (int k = 0; 4 * k < terms; ++k) {
        at_a.w = k;
        at_b[u.b_rows] = k;
        int one = ones(terms - 4 * k);
        // What fills up the last texel is not known to be 0.
        int word = a_at(u.a, at_a) & 255 * one;
        ivec4 others;
        for (int lane = 0; lane < 4; ++lane) {
            at_b.w = columns[lane];
            others[lane] = b_at(u.b, at_b);
        }
        acc += dots(word, others);
        sum_a += dot4(word, one);
        sum_b += dots(one, others);
    }
    acc += u.b_zero * (u.a_zero * terms - sum_a) - u.a_zero * sum_b;
    Codes codes = Codes(u.y_zero, u.y_low, u.y_high);
    y_put(u.y, p, pack(requantize(acc, ivec4(u.multiplier), ivec4(u.shift), codes)));
}
