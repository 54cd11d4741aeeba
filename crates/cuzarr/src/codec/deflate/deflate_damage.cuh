// Codes of damage of deflate streams, beside those of every format (`cuzarr/status.cuh`): 64 to 95.
#pragma once
#include "cuzarr/status.cuh"

#define CUZARR_BAD_CODE 64u   // the code lengths of a block do not make a code
#define CUZARR_NO_SYMBOL 65u  // bits that match no code
#define CUZARR_BAD_BLOCK 66u  // a block of no known type, or a stored one whose size contradicts itself
