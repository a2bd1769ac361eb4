// Where the cells of a tensor lie: the only place that knows.
//
// Sizes and positions are N, C, H, W. A texel holds four cells along the packed axis; a grid
// position counts texels, so it differs from a cell position on that axis only. Divisions are few:
// software drivers turn each into a call for each lane.

struct Tensor {
    ivec4 size;    // cells along each axis
    ivec4 grid;    // texels along each axis
    ivec4 stride;  // distance of neighbouring texels in a buffer
    ivec4 order;   // axes from the innermost out, as texels follow each other in a buffer
    ivec4 shift;   // 2 on the packed axis, else 0: cells = texels << shift
};

// The grid position of the i-th texel of a buffer.
ivec4 grid_at(Tensor t, int i) {
    ivec4 p;
    for (int k = 0; k < 3; ++k) {
        int axis = t.order[k];
        int rest = i / t.grid[axis];
        p[axis] = i - rest * t.grid[axis];
        i = rest;
    }
    p[t.order.w] = i;
    return p;
}

int buffer_at(Tensor t, ivec4 p) {
    ivec4 part = p * t.stride;
    return part.x + part.y + part.z + part.w;
}

// Batches are stacked in depth.
ivec3 texture_at(Tensor t, ivec4 p) { return ivec3(p.w, p.z, p.x * t.grid.y + p.y); }

// The cell that is `lane` (0..3) of the texel at p.
ivec4 cell_at(Tensor t, ivec4 p, int lane) { return (p << t.shift) + lane * (t.shift >> 1); }

ivec4 grid_of(Tensor t, ivec4 cell) { return cell >> t.shift; }

int lane_of(Tensor t, ivec4 cell) {
    ivec4 rest = cell & (ivec4(1) << t.shift) - 1;
    return rest.x + rest.y + rest.z + rest.w;
}

// Cells in a texel, 4. Loops that count to this are not unrolled: four copies of a body that reads
// from any layout cost software drivers seconds of compiling, and GPUs little.
int span(Tensor t) { return 1 << t.shift.x + t.shift.y + t.shift.z + t.shift.w; }

bool inside(Tensor t, ivec4 cell) {
    return all(greaterThanEqual(cell, ivec4(0))) && all(lessThan(cell, t.size));
}

// Row-major numbers of cells, whatever the layout.
int number_of(Tensor t, ivec4 cell) {
    return ((cell.x * t.size.y + cell.y) * t.size.z + cell.z) * t.size.w + cell.w;
}

ivec4 cell_numbered(Tensor t, int i) {
    ivec4 cell;
    for (int axis = 3; axis > 0; --axis) {
        int rest = i / t.size[axis];
        cell[axis] = i - rest * t.size[axis];
        i = rest;
    }
    cell.x = i;
    return cell;
}
