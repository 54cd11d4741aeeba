"""Memory of the host and of GPUs, passed between the Rust side and Python's libraries."""
