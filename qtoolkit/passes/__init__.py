"""The passes, one stage a module: fuse, lower, place, transitions."""
