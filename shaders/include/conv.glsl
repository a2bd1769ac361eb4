// The operands and the geometry that all convolutions share.

layout(binding = 0, std140) uniform Params {
    Tensor x;
    Tensor y;
    int texels;
    int kernel_h, kernel_w;
    int stride_h, stride_w;
    int padding_h, padding_w;
    int dilation_h, dilation_w;
    int x_zero;
    int y_zero, y_low, y_high;
    int group_inputs, group_outputs;  // in texels where whole texels belong to a group, else cells
    int channels_in;                  // cells that a sum runs over
} u;

#define NAME x
#define BINDING 1
#define TEXTURE X_TEXTURE
#define KIND CODES
#define ACCESS readonly
#define READS
#include "operand.glsl"

#define NAME y
#define BINDING 4
#define TEXTURE Y_TEXTURE
#define KIND CODES
#define ACCESS writeonly
#define WRITES
#include "operand.glsl"

#define CHANNELS_BINDING 3
#include "channels.glsl"

// The input row or column that tap k of output index i sees.
int row_of(int i, int k) { return i * u.stride_h - u.padding_h + k * u.dilation_h; }
int column_of(int i, int k) { return i * u.stride_w - u.padding_w + k * u.dilation_w; }
