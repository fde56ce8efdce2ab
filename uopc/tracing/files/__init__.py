"""Arrays in files: views of any file, safetensors, and arrays larger than memory."""
