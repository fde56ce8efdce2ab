"""LLVM IR from linear UOps, and the object code LLVM makes of it."""
