// One invocation a texel, numbered through; a dispatch may need rows of groups.

layout(local_size_x = 64) in;

int invocation() {
    return int(gl_GlobalInvocationID.x
               + gl_GlobalInvocationID.y * gl_NumWorkGroups.x * gl_WorkGroupSize.x);
}
