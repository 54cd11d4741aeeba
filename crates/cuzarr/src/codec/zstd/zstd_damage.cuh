// Codes of damage of zstd frames, beside those of every format (`cuzarr/status.cuh`): 32 to 63.
#pragma once
#include "cuzarr/status.cuh"

#define CUZARR_ZSTD_BAD_TABLE 32u    // a table of codes is invalid
#define CUZARR_ZSTD_BAD_BITS 33u     // a stream of codes does not end where its bits do
#define CUZARR_ZSTD_LARGE_BLOCK 34u  // a block decodes to more than 128 KiB, or than its frame's window
