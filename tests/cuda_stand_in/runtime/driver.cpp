// The driver: contexts, which torch asks for before it touches a device, and functions by name.
#include <dlfcn.h>

#include "devices.h"

using namespace stand_in;

extern "C" {

CUresult cuInit(unsigned) { return device_count() ? CUDA_SUCCESS : cudaErrorNoDevice; }

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return 0 <= ordinal && ordinal < device_count() ? CUDA_SUCCESS : cudaErrorInvalidDevice;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* is_active) {
  if (flags) *flags = 0;
  *is_active = is_in_use(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = reinterpret_cast<CUcontext>(uintptr_t(device) + 1);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(uintptr_t(current_device()) + 1);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

// The driver never logs anything.
CUresult cuLogsRegisterCallback(void*, void*, uintptr_t* handle) {
  *handle = 1;
  return CUDA_SUCCESS;
}
CUresult cuLogsUnregisterCallback(uintptr_t) { return CUDA_SUCCESS; }

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = cudaGetErrorString(cudaError_t(error));
  return CUDA_SUCCESS;
}

}  // extern "C"
