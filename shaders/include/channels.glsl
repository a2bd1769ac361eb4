// What a weighted op knows of its output channels, four at a time.

struct Channels {
    ivec4 bias;        // with -x_zero * sum(w) where codes are multiplied as they are
    ivec4 multiplier;  // mode float: the bits of r
    ivec4 shift;
    ivec4 w_zero;
};

layout(binding = CHANNELS_BINDING, std430) readonly buffer ChannelsBuffer { Channels channels[]; };

ivec4 requantize(ivec4 acc, int o4, Codes y) {
    return requantize(acc, channels[o4].multiplier, channels[o4].shift, y);
}
