// Functions of other libraries that torch calls although no kernel runs: versions, and the profiler's.
#include <cstddef>
#include <cstdint>

extern "C" {

size_t cudnnGetVersion() { return 92400; }
size_t cudnnGetCudartVersion() { return 13000; }
size_t cublasLtGetVersion() { return 130000; }

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}

}  // extern "C"
