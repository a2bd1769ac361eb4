// int8 codes, four in a word, the first in the lowest byte. Needs no 8-bit types.

#ifndef CODES_GLSL
#define CODES_GLSL

ivec4 unpack(int word) {
    return ivec4(bitfieldExtract(word, 0, 8), bitfieldExtract(word, 8, 8),
                 bitfieldExtract(word, 16, 8), bitfieldExtract(word, 24, 8));
}

int unpack(int word, int lane) { return bitfieldExtract(word, 8 * lane, 8); }

int pack(ivec4 codes) {
    codes &= 255;
    return codes.x | codes.y << 8 | codes.z << 16 | codes.w << 24;
}

#endif
