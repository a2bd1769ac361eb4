"""ExecuTorch's Vulkan placement: its operator table, recorded runs of it, and it itself, live."""
