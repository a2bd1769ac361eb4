#version 450
#extension GL_GOOGLE_include_directive : require
// Rows of a table by their numbers.

#include "codes.glsl"
#include "tensor.glsl"
#include "invocation.glsl"

layout(binding = 0, std140) uniform Params {
    Tensor table;    // [V, D], packed along D
    Tensor indices;
    Tensor y;        // indices, then D
    int texels;
} u;

#define NAME table
#define BINDING 1
#define TEXTURE TABLE_TEXTURE
#define KIND REALS
#define ACCESS readonly
#define READS
#include "operand.glsl"

#define NAME indices
#define BINDING 2
#define TEXTURE 0
#define KIND INTS
#define ACCESS readonly
#define READS
#include "operand.glsl"

#define NAME y
#define BINDING 3
#define TEXTURE Y_TEXTURE
#define KIND REALS
#define ACCESS writeonly
#define WRITES
#include "operand.glsl"

void main() {
    int i = invocation();
    if (i >= u.texels) {
        return;
    }
    ivec4 p = grid_at(u.y, i);
    int row = number_of(u.y, ivec4(p.xyz, 0)) / u.y.size.w;
    int index = indices_cell(u.indices, cell_numbered(u.indices, row));
    // The host raises for an index beyond the table: here it must only not read beyond it.
    index = clamp(index, 0, u.table.size.z - 1);
    y_put(u.y, p, table_at(u.table, ivec4(0, 0, index, p.w)));
}
