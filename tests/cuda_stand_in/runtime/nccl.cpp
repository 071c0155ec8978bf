// NCCL
