/* The structures of DLPack, version 1.1, as its specification lays them out: https://dmlc.github.io/dlpack/latest/c_api.html.
 * For the tests alone; programs include dlpack/dlpack.h. */
#ifndef CUZARR_TESTS_DLPACK_H
#define CUZARR_TESTS_DLPACK_H

#include <stdint.h>

typedef struct {
    int32_t device_type, device_id;
} DLDevice;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

#endif
