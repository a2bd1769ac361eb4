// Where the cells of a tensor lie: the only place that knows.
//
// Sizes and positions are N, C, H, W. A texel holds four cells along the packed axis; a grid
// position counts texels, so it differs from a cell position on that axis only.

struct Tensor {
    ivec4 size;    // cells along each axis
    ivec4 grid;    // texels along each axis
    ivec4 stride;  // distance of neighbouring texels in a buffer
    ivec4 unit;    // cells that a texel spans along each axis: 4 on the packed one, else 1
};

// The grid position of the i-th texel of a buffer.
ivec4 grid_at(Tensor t, int i) { return (ivec4(i) / t.stride) % t.grid; }

int buffer_at(Tensor t, ivec4 p) {
    ivec4 part = p * t.stride;
    return part.x + part.y + part.z + part.w;
}

// Batches are stacked in depth.
ivec3 texture_at(Tensor t, ivec4 p) { return ivec3(p.w, p.z, p.x * t.grid.y + p.y); }

// The cell that is `lane` (0..3) of the texel at p.
ivec4 cell_at(Tensor t, ivec4 p, int lane) { return p * t.unit + lane * (t.unit / 4); }

ivec4 grid_of(Tensor t, ivec4 cell) { return cell / t.unit; }

int lane_of(Tensor t, ivec4 cell) {
    ivec4 rest = cell % t.unit;
    return rest.x + rest.y + rest.z + rest.w;
}

bool inside(Tensor t, ivec4 cell) {
    return all(greaterThanEqual(cell, ivec4(0))) && all(lessThan(cell, t.size));
}

int cells_of(Tensor t) { return t.size.x * t.size.y * t.size.z * t.size.w; }

// Row-major numbers of cells, whatever the layout.
int number_of(Tensor t, ivec4 cell) {
    return ((cell.x * t.size.y + cell.y) * t.size.z + cell.z) * t.size.w + cell.w;
}

ivec4 cell_numbered(Tensor t, int i) {
    ivec4 cell;
    cell.w = i % t.size.w;
    i /= t.size.w;
    cell.z = i % t.size.z;
    i /= t.size.z;
    cell.y = i % t.size.y;
    cell.x = i / t.size.y;
    return cell;
}
