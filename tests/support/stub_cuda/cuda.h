// The names of the CUDA driver that src/launch uses, for tests without it: they hand out the
// functions by cudaGetDriverEntryPointByVersion.
#pragma once

enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
using CUdevice = int;
using CUstream = struct CUstream_st*;
using CUgreenCtx = struct CUgreenCtx_st*;
using CUdevResourceDesc = struct CUdevResourceDesc_st*;
enum CUdevResourceType { CU_DEV_RESOURCE_TYPE_SM = 1 };
inline constexpr unsigned CU_GREEN_CTX_DEFAULT_STREAM = 1;
inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
struct CUdevResource {
  struct {
    unsigned smCount = 0;
    unsigned minSmPartitionSize = 0;
  } sm;
};

CUresult cuDeviceGet(CUdevice* device, int index);
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type);
CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned* groups,
                                     const CUdevResource* input, CUdevResource* rest,
                                     unsigned flags, unsigned least);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources,
                                   unsigned count);
CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc description, CUdevice device,
                          unsigned flags);
CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx context, unsigned flags, int priority);
