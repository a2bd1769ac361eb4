#version 450
#extension GL_GOOGLE_include_directive : require
// Averages over windows that the host lists: plain, with ceil, and adaptive pools alike.

#include "codes.glsl"
#include "tensor.glsl"
#include "invocation.glsl"
#include "requantize.glsl"

layout(binding = 0, std140) uniform Params {
    Tensor x;
    Tensor y;
    int texels;
    int x_zero;
    int y_zero, y_low, y_high;
} u;

#define NAME x
#define BINDING 1
#define TEXTURE X_TEXTURE
#define KIND CODES
#define ACCESS readonly
#define READS
#include "operand.glsl"

// (first, end) of the cells that each output row sees, then those of each column.
layout(binding = 2, std430) readonly buffer Spans { ivec2 spans[]; };

// x_scale / (y_scale * count) for each output row and column.
layout(binding = 3, std430) readonly buffer Factors { float factors[]; };

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
    ivec2 rows = spans[p.z];
    ivec2 columns = spans[u.y.size.z + p.w];
    ivec4 sum = ivec4(0);
    for (int h = rows.x; h < rows.y; ++h) {
        for (int w = columns.x; w < columns.y; ++w) {
            sum += unpack(x_at(u.x, ivec4(p.x, p.y, h, w))) - u.x_zero;
        }
    }
    precise vec4 steps = vec4(sum) * factors[p.z * u.y.size.w + p.w];
    y_put(u.y, p, pack(to_codes(steps, Codes(u.y_zero, u.y_low, u.y_high))));
}
