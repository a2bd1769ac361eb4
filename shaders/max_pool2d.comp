#version 450
#extension GL_GOOGLE_include_directive : require
// The greatest cell of each window, of codes or of real numbers; padding is ignored.

#include "codes.glsl"
#include "tensor.glsl"
#include "invocation.glsl"

layout(binding = 0, std140) uniform Params {
    Tensor x;
    Tensor y;
    int texels;
    int kernel_h, kernel_w;
    int stride_h, stride_w;
    int padding_h, padding_w;
    int dilation_h, dilation_w;
} u;

#define NAME x
#define BINDING 1
#define TEXTURE X_TEXTURE
#define KIND X_KIND
#define ACCESS readonly
#define READS
#include "operand.glsl"

#define NAME y
#define BINDING 2
#define TEXTURE Y_TEXTURE
#define KIND X_KIND
#define ACCESS writeonly
#define WRITES
#include "operand.glsl"

#if X_KIND == REALS
// NaN wins, as in torch.
float greater(float most, float x) { return most != most || x <= most ? most : x; }
vec4 greater(vec4 most, vec4 x) {
    return vec4(greater(most.x, x.x), greater(most.y, x.y), greater(most.z, x.z),
                greater(most.w, x.w));
}
#endif

void main() {
    int i = invocation();
    if (i >= u.texels) {
        return;
    }
    ivec4 p = grid_at(u.y, i);
#if X_KIND == REALS
    vec4 most = vec4(intBitsToFloat(int(0xff800000)));
#else
    ivec4 most = ivec4(-128);
#endif
    for (int kh = 0; kh < u.kernel_h; ++kh) {
        int h = p.z * u.stride_h - u.padding_h + kh * u.dilation_h;
        for (int kw = 0; kw < u.kernel_w; ++kw) {
            int w = p.w * u.stride_w - u.padding_w + kw * u.dilation_w;
            if (h >= 0 && h < u.x.size.z && w >= 0 && w < u.x.size.w) {
#if X_KIND == REALS
                most = greater(most, x_at(u.x, ivec4(p.x, p.y, h, w)));
#else
                most = max(most, unpack(x_at(u.x, ivec4(p.x, p.y, h, w))));
#endif
            }
        }
    }
#if X_KIND == REALS
    y_put(u.y, p, most);
#else
    y_put(u.y, p, pack(most));
#endif
}
