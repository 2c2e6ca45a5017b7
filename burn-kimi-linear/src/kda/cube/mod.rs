//! The kernels for GPUs.
