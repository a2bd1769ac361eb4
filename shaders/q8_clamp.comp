#version 450
#extension GL_GOOGLE_include_directive : require
// Codes limited to a range.

#include "codes.glsl"
#include "tensor.glsl"
#include "invocation.glsl"

layout(binding = 0, std140) uniform Params {
    Tensor x;
    Tensor y;
    int texels;
    int low, high;
} u;

#define NAME x
#define BINDING 1
#define TEXTURE X_TEXTURE
#define KIND CODES
#define ACCESS readonly
#define READS
#include "operand.glsl"

#define NAME y
#define BINDING 2
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
    y_put(u.y, p, pack(clamp(unpack(x_like(u.x, u.y, p)), u.low, u.high)));
}
