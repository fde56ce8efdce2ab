"""Arrays in files: views of any file, safetensors, arrays larger than memory."""
