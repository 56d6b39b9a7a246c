# For tests that compile for GPUs: sets $nvcc, or ends the test as skipped.
nvcc=${NVCC:-nvcc}
command -v "$nvcc" >/dev/null || nvcc=/usr/local/cuda/bin/nvcc
command -v "$nvcc" >/dev/null || { echo 'skipped: no nvcc (NVCC names it)'; exit 77; }
