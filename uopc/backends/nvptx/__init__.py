"""PTX for NVIDIA GPUs, through LLVM."""
