#version 450
#extension GL_GOOGLE_include_directive : require
// a + alpha * b on codes: two products and one sum in float32, in steps of the result.

#include "codes.glsl"
#include "tensor.glsl"
#include "invocation.glsl"
#include "requantize.glsl"

layout(binding = 0, std140) uniform Params {
    Tensor a;
    Tensor b;
    Tensor y;
    int texels;
    int a_zero, b_zero;
    int ra, rb;  // the bits of a_scale / y_scale and alpha * b_scale / y_scale
    int y_zero, y_low, y_high;
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
    vec4 a = vec4(unpack(a_like(u.a, u.y, p)) - u.a_zero);
    vec4 b = vec4(unpack(b_like(u.b, u.y, p)) - u.b_zero);
    precise vec4 steps_a = intBitsToFloat(u.ra) * a;
    precise vec4 steps_b = intBitsToFloat(u.rb) * b;
    precise vec4 steps = steps_a + steps_b;
    y_put(u.y, p, pack(to_codes(steps, Codes(u.y_zero, u.y_low, u.y_high))));
}
