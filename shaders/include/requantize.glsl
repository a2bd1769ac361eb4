// int32 sums to codes, in the three modes of the numeric contract.

layout(constant_id = 0) const int MODE = 0;
const int FLOAT = 0;
const int FIXED = 1;
const int FIXED_DOUBLE = 2;

// What the codes of a result are clamped to, around its zero point.
struct Codes {
    int zero;
    int low;
    int high;
};

int to_code(float steps, Codes y) {
    return y.zero + int(clamp(roundEven(steps), float(y.low - y.zero), float(y.high - y.zero)));
}

ivec4 to_codes(vec4 steps, Codes y) {
    return y.zero + ivec4(clamp(roundEven(steps), vec4(y.low - y.zero), vec4(y.high - y.zero)));
}

// (acc * multiplier + 2^(s-1)) >> s in 64 bits, s = 31 - shift, saturated to int32.
int fixed_steps(int acc, int multiplier, int shift) {
    int s = 31 - shift;
    if (s > 62) {
        return 0;
    }
    int high, low;
    imulExtended(acc, multiplier, high, low);
    uint carry;
    uint half_low = s - 1 < 32 ? 1u << (s - 1) : 0u;
    uint sum = uaddCarry(uint(low), half_low, carry);
    high += int(carry) + (s - 1 < 32 ? 0 : 1 << (s - 33));
    if (s >= 32) {
        return s == 32 ? high : high >> (s - 32);
    }
    int rounded = int(sum >> s) | high << (32 - s);
    // What is left of the high word must be the sign.
    int beyond = high >> s;
    return beyond == rounded >> 31 ? rounded : (beyond < 0 ? int(0x80000000) : 0x7fffffff);
}

int saturating_left(int acc, int left) {
    const int most = 0x7fffffff;
    const int least = int(0x80000000);
    return acc > most >> left ? most : acc < least >> left ? least : acc << left;
}

// The rounded high half of twice the product, then a rounded right shift: rounds twice.
int fixed_double_steps(int acc, int multiplier, int shift) {
    int a = saturating_left(acc, clamp(shift, 0, 31));
    int high, low;
    imulExtended(a, multiplier, high, low);
    uint nudge_low = high < 0 ? uint(1 - (1 << 30)) : uint(1 << 30);
    uint carry;
    uint sum = uaddCarry(uint(low), nudge_low, carry);
    high += int(carry) + (high < 0 ? -1 : 0);
    // Divide by 2^31, truncating to zero.
    int v = int(sum >> 31) | high << 1;
    if (high < 0 && (sum & 0x7fffffffu) != 0u) {
        v += 1;
    }
    int n = max(-shift, 0);
    if (n >= 32) {
        return 0;
    }
    int bounded = min(n, 31);
    int mask = int((1u << bounded) - 1u);
    int threshold = (mask >> 1) + (v < 0 ? 1 : 0);
    return (v >> bounded) + ((v & mask) > threshold ? 1 : 0);
}

// In mode FLOAT `multiplier` holds the bits of the factor r, computed on the host.
ivec4 requantize(ivec4 acc, ivec4 multiplier, ivec4 shift, Codes y) {
    if (MODE == FLOAT) {
        precise vec4 steps = vec4(acc) * intBitsToFloat(multiplier);
        return to_codes(steps, y);
    }
    ivec4 steps;
    for (int lane = 0; lane < 4; ++lane) {
        steps[lane] = MODE == FIXED
                          ? fixed_steps(acc[lane], multiplier[lane], shift[lane])
                          : fixed_double_steps(acc[lane], multiplier[lane], shift[lane]);
    }
    return y.zero + clamp(steps, ivec4(y.low - y.zero), ivec4(y.high - y.zero));
}
