/* CUDA's runtime, driver and monitor without a device, for tests.

   Memory of the device is memory of the host. All work is done at once, by the thread that asks.
   Torch's operations come from operations.py: a capture notes their numbers, and the launch of a
   graph calls back. A real kernel is refused. What CUDA forbids in a capture is an error here. */

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME "Simulated GPU"
#define DRIVER "600.0"
#define CUDA 13000
#define ALIGNMENT 512

typedef enum cudaStreamCaptureMode Mode;

/* An operation: a copy, a fill, or the number of a Python function. */
struct Node { void *to; const void *from; size_t bytes; int value; long number; };

struct CUgraph_st { struct Node *nodes; size_t count, room; Mode mode; pthread_t by; int broken; };
struct CUgraphExec_st { struct CUgraph_st *graph; };
struct CUstream_st { int priority; struct CUgraph_st *capture; int joined; };
struct CUevent_st { double at; struct CUgraph_st *capture; };

struct Block { char *at; size_t bytes; int on_device; struct Block *next; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct Block *blocks;
static size_t used;
static size_t total = (size_t)16 << 30;
static size_t taken;          /* by "another program" */
static struct CUstream_st default_stream;
static struct CUgraph_st *captures[64];
static int lost, refused_captures, lost_after = -1;
static long replays;
static int (*call_back)(long number, int release);
static __thread cudaError_t last;
static __thread Mode mode_of_thread = cudaStreamCaptureModeGlobal;

__attribute__((constructor)) static void begin(void) {
    const char *bytes = getenv("SIMULATED_CUDA_MEMORY");
    if (bytes) total = strtoull(bytes, NULL, 10);
}

static cudaError_t fail(cudaError_t error) { return last = error; }
static cudaError_t done(void) { return lost ? fail(cudaErrorLaunchFailure) : cudaSuccess; }
static CUstream stream_of(cudaStream_t stream) {
    return stream && (size_t)stream > 2 ? stream : &default_stream;
}

/* What operations.py and the tests ask for. */

void simulated_call_back(int (*function)(long, int)) { call_back = function; }
void simulated_lose_after(int more) { lost_after = more; }
void simulated_take(size_t bytes) { taken = bytes; }
void simulated_refuse_captures(int count) { refused_captures = count; }
long simulated_replays(void) { return replays; }

static void add(struct CUgraph_st *graph, struct Node node) {
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 64;
        graph->nodes = realloc(graph->nodes, graph->room * sizeof node);
    }
    graph->nodes[graph->count++] = node;
}

/* Return 1 if the operation became a part of a capture, 0 if it is to be done now, -1 if lost. */
int simulated_launch(cudaStream_t handle, long number) {
    CUstream stream = stream_of(handle);
    if (lost_after >= 0 && lost_after-- == 0) lost = 1;
    if (lost) return -1;
    if (!stream->capture) return 0;
    add(stream->capture, (struct Node){.number = number});
    return 1;
}

/* Captures. */

static void break_capture(struct CUgraph_st *graph) { graph->broken = 1; }

/* Refuse what CUDA forbids to this thread while a capture is under way. */
static cudaError_t unsafe(void) {
    if (mode_of_thread == cudaStreamCaptureModeRelaxed) return done();
    for (int i = 0; i < 64; i++) {
        struct CUgraph_st *graph = captures[i];
        if (!graph || graph->mode == cudaStreamCaptureModeRelaxed) continue;
        int own = pthread_equal(graph->by, pthread_self());
        if (own || (graph->mode == cudaStreamCaptureModeGlobal &&
                    mode_of_thread == cudaStreamCaptureModeGlobal)) {
            break_capture(graph);
            return fail(cudaErrorStreamCaptureUnsupported);
        }
    }
    return done();
}

cudaError_t cudaThreadExchangeStreamCaptureMode(Mode *mode) {
    Mode before = mode_of_thread;
    mode_of_thread = *mode;
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, Mode mode) {
    CUstream stream = stream_of(handle);
    if (lost) return done();
    if (stream == &default_stream || stream->capture) return fail(cudaErrorIllegalState);
    if (refused_captures && refused_captures--) return fail(cudaErrorStreamCaptureUnsupported);
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    graph->mode = mode;
    graph->by = pthread_self();
    stream->capture = graph;
    stream->joined = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 64; i++) if (!captures[i]) { captures[i] = graph; break; }
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static void release(struct CUgraph_st *graph) {
    for (size_t i = 0; graph && i < graph->count; i++)
        if (graph->nodes[i].number && call_back) call_back(graph->nodes[i].number, 1);
    if (graph) free(graph->nodes);
    free(graph);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *found) {
    CUstream stream = stream_of(handle);
    struct CUgraph_st *graph = stream->capture;
    *found = NULL;
    if (!graph || stream->joined) return fail(cudaErrorIllegalState);
    stream->capture = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 64; i++) if (captures[i] == graph) captures[i] = NULL;
    pthread_mutex_unlock(&lock);
    if (graph->broken || lost) {
        release(graph);
        return lost ? done() : fail(cudaErrorStreamCaptureInvalidated);
    }
    *found = graph;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
    struct CUgraph_st *graph = stream_of(handle)->capture;
    *status = !graph ? cudaStreamCaptureStatusNone
              : graph->broken ? cudaStreamCaptureStatusInvalidated
                              : cudaStreamCaptureStatusActive;
    return done();
}

cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t handle, enum cudaStreamCaptureStatus *status, unsigned long long *id,
    cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
    size_t *count) {
    cudaStreamIsCapturing(handle, status);
    if (id) *id = (size_t)stream_of(handle)->capture;
    if (graph) *graph = stream_of(handle)->capture;
    if (nodes) *nodes = NULL;
    if (edges) *edges = NULL;
    if (count) *count = 0;
    return done();
}

cudaError_t cudaGraphInstantiateWithFlags(
    cudaGraphExec_t *found, cudaGraph_t graph, unsigned long long flags) {
    (void)flags;
    /* A graph is instantiated once here, so its operations move. */
    *found = calloc(1, sizeof **found);
    (*found)->graph = malloc(sizeof *graph);
    *(*found)->graph = *graph;
    graph->nodes = NULL;
    graph->room = 0;
    return done();
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    if (!nodes) *count = graph->count;
    return done();
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (!graph->nodes) graph->count = 0;
    release(graph);
    return done();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    release(exec->graph);
    free(exec);
    return done();
}

static void work(struct Node *node) {
    if (node->from) memmove(node->to, node->from, node->bytes);
    else if (node->to) memset(node->to, node->value, node->bytes);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    if (stream_of(handle)->capture) return fail(cudaErrorStreamCaptureUnsupported);
    if (lost_after >= 0 && lost_after-- == 0) lost = 1;
    replays++;
    for (size_t i = 0; !lost && i < exec->graph->count; i++) {
        struct Node *node = &exec->graph->nodes[i];
        if (!node->number) work(node);
        else if (!call_back || !call_back(node->number, 0)) return fail(cudaErrorLaunchFailure);
    }
    return done();
}

/* Memory. */

static cudaError_t allocate(void **found, size_t bytes, int on_device) {
    *found = NULL;
    if (lost) return done();
    pthread_mutex_lock(&lock);
    int fits = !on_device || used + taken + bytes <= total;
    struct Block *block = fits ? calloc(1, sizeof *block) : NULL;
    if (block) block->at = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
    if (!block || !block->at) {
        free(block);
        pthread_mutex_unlock(&lock);
        return fail(cudaErrorMemoryAllocation);
    }
    block->bytes = bytes;
    block->on_device = on_device;
    block->next = blocks;
    blocks = block;
    if (on_device) {
        used += bytes;
        memset(block->at, 0xff, bytes); /* not a number in each type, for reads before writes */
    }
    pthread_mutex_unlock(&lock);
    *found = block->at;
    return cudaSuccess;
}

static cudaError_t release_memory(void *memory) {
    pthread_mutex_lock(&lock);
    for (struct Block **block = &blocks; *block; block = &(*block)->next)
        if ((*block)->at == memory) {
            struct Block *gone = *block;
            *block = gone->next;
            if (gone->on_device) used -= gone->bytes;
            free(gone->at);
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
    return done();
}

static struct Block *block_of(const void *memory) {
    struct Block *block;
    pthread_mutex_lock(&lock);
    for (block = blocks; block; block = block->next)
        if ((char *)memory >= block->at && (char *)memory < block->at + block->bytes) break;
    pthread_mutex_unlock(&lock);
    return block;
}

cudaError_t cudaMalloc(void **found, size_t bytes) {
    cudaError_t error = unsafe();
    return error ? error : allocate(found, bytes, 1);
}

cudaError_t cudaFree(void *memory) {
    cudaError_t error = unsafe();
    return error ? error : release_memory(memory);
}

cudaError_t cudaHostAlloc(void **found, size_t bytes, unsigned int flags) {
    (void)flags;
    cudaError_t error = unsafe();
    return error ? error : allocate(found, bytes, 0);
}

cudaError_t cudaFreeHost(void *memory) { return release_memory(memory); }

cudaError_t cudaMemGetInfo(size_t *unused, size_t *whole) {
    *whole = total;
    *unused = used + taken < total ? total - used - taken : 0;
    return done();
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *memory) {
    struct Block *block = block_of(memory);
    memset(found, 0, sizeof *found);
    found->type = !block ? cudaMemoryTypeUnregistered
                  : block->on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    found->devicePointer = found->hostPointer = block ? (void *)memory : NULL;
    return done();
}

static cudaError_t submit(cudaStream_t handle, struct Node node, int pageable) {
    struct CUgraph_st *graph = stream_of(handle)->capture;
    if (graph && pageable) {
        break_capture(graph);
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    if (lost) return done();
    if (graph) add(graph, node);
    else work(&node);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    int pageable = !block_of(to) || !block_of(from);
    return submit(stream, (struct Node){.to = to, .from = from, .bytes = bytes}, pageable);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    cudaError_t error = unsafe();
    return error ? error : cudaMemcpyAsync(to, from, bytes, kind, NULL);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    return submit(stream, (struct Node){.to = to, .bytes = bytes, .value = value}, 0);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    cudaError_t error = unsafe();
    return error ? error : cudaMemsetAsync(to, value, bytes, NULL);
}

/* Streams and events. */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *found, unsigned int flags, int priority) {
    (void)flags;
    *found = calloc(1, sizeof **found);
    (*found)->priority = priority;
    return done();
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *found, unsigned int flags) {
    return cudaStreamCreateWithPriority(found, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *found) { return cudaStreamCreateWithFlags(found, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { free(stream); return done(); }
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    *priority = stream_of(stream)->priority;
    return done();
}

static cudaError_t wait_for(struct CUgraph_st *graph) {
    if (!graph) return done();
    break_capture(graph);
    return fail(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return wait_for(stream_of(stream)->capture);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaDeviceSynchronize(void) {
    for (int i = 0; i < 64; i++) if (captures[i]) return wait_for(captures[i]);
    return done();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *found, unsigned int flags) {
    (void)flags;
    *found = calloc(1, sizeof **found);
    return done();
}
cudaError_t cudaEventCreate(cudaEvent_t *found) { return cudaEventCreateWithFlags(found, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return done(); }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
    (void)flags;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->at = now.tv_sec * 1e3 + now.tv_nsec / 1e6;
    event->capture = stream_of(stream)->capture;
    return done();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, 0);
}
/* The allocator asks for the state of such an event after the end of the capture. */
static int is_open(struct CUgraph_st *graph) {
    for (int i = 0; graph && i < 64; i++) if (captures[i] == graph) return 1;
    return 0;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return wait_for(is_open(event->capture) ? event->capture : NULL);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaEventQuery(event); }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    if (!start->at || !end->at) return fail(cudaErrorInvalidResourceHandle);
    *ms = (float)(end->at - start->at);
    return done();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int flags) {
    (void)flags;
    CUstream stream = stream_of(handle);
    if (is_open(event->capture) && !stream->capture) {
        stream->capture = event->capture;
        stream->joined = 1;
    }
    return done();
}

/* The device. */

cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device ? fail(cudaErrorInvalidDevice) : done(); }
cudaError_t cudaDriverGetVersion(int *version) { *version = CUDA; return cudaSuccess; }
CUresult cuDriverGetVersion(int *version) { *version = CUDA; return CUDA_SUCCESS; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDA; return cudaSuccess; }
cudaError_t cudaGetLastError(void) {
    cudaError_t error = last;
    last = cudaSuccess;
    return lost ? cudaErrorLaunchFailure : error;
}
cudaError_t cudaPeekAtLastError(void) { return lost ? cudaErrorLaunchFailure : last; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return done();
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    (void)device;
    *value = attribute == cudaDevAttrMultiProcessorCount ? 132
             : attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return done();
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
    (void)device;
    memset(found, 0, sizeof *found);
    strcpy(found->name, NAME);
    memset(&found->uuid, 7, sizeof found->uuid);
    found->totalGlobalMem = total;
    found->major = 9;
    found->multiProcessorCount = 132;
    found->warpSize = 32;
    found->maxThreadsPerBlock = 1024;
    found->maxThreadsPerMultiProcessor = 2048;
    found->sharedMemPerBlock = 48 << 10;
    found->sharedMemPerBlockOptin = found->sharedMemPerMultiprocessor = 227 << 10;
    found->regsPerBlock = found->regsPerMultiprocessor = 65536;
    found->l2CacheSize = 50 << 20;
    found->memoryBusWidth = 5120;
    found->unifiedAddressing = found->concurrentKernels = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    (void)device; (void)peer;
    *can = 0;
    return done();
}

const char *cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
           : error == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure" : "cudaError";
}
const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorNotSupported: return "operation not supported";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    default: return "another error of the simulated device";
    }
}

/* Kernels: torch registers thousands. Whatever launches one was not taken over by operations.py. */

static struct { const void *function; const char *name; } *kernels;
static size_t kernel_count, kernel_room;

void **__cudaRegisterFatBinary(void *binary) { (void)binary; return calloc(1, sizeof(void *)); }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
char __cudaInitModule(void **handle) { (void)handle; return 0; }
void __cudaRegisterVar(void) {}
void __cudaRegisterFunction(
    void **handle, const char *function, char *device_function, const char *name, int limit,
    void *tid, void *bid, void *block, void *grid, int *size) {
    (void)handle; (void)device_function; (void)limit; (void)tid; (void)bid; (void)block;
    (void)grid; (void)size;
    if (kernel_count == kernel_room) {
        kernel_room = kernel_room ? 2 * kernel_room : 65536;
        kernels = realloc(kernels, kernel_room * sizeof *kernels);
    }
    kernels[kernel_count].function = function;
    kernels[kernel_count++].name = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    (void)grid; (void)block; (void)shared; (void)stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(void *grid, void *block, size_t *shared, void *stream) {
    (void)grid; (void)block; (void)shared; (void)stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    *kernel = (cudaKernel_t)function;
    return cudaSuccess;
}
static cudaError_t refuse(const void *function) {
    for (size_t i = 0; i < kernel_count; i++)
        if (kernels[i].function == function)
            fprintf(stderr, "simulated CUDA: no kernel %s\n", kernels[i].name);
    return fail(cudaErrorNotSupported);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel) { return refuse(kernel); }
cudaError_t cudaLaunchKernelExC(
    const cudaLaunchConfig_t *config, const void *function, void **arguments) {
    (void)config; (void)arguments;
    return refuse(function);
}
cudaError_t cudaLaunchKernel(
    const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
    cudaStream_t stream) {
    (void)grid; (void)block; (void)arguments; (void)shared; (void)stream;
    return refuse(function);
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *function) {
    (void)function;
    memset(found, 0, sizeof *found);
    return done();
}
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute which, int value) {
    (void)function; (void)which; (void)value;
    return done();
}

/* The driver and the monitor, as far as voxtui and torch ask them. */

CUresult cuInit(unsigned int flags) { (void)flags; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int number) { *device = number; return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *name, int room, CUdevice device) {
    (void)device;
    snprintf(name, room, "%s", NAME);
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    (void)device;
    *bytes = total;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    (void)device;
    memset(uuid, 7, sizeof *uuid);
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    return (CUresult)cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device);
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    static int here;
    *context = (CUcontext)&here;
    return CUDA_SUCCESS;
}
static CUresult not_supported(void) { return CUDA_ERROR_NOT_SUPPORTED; }
cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **function, unsigned int version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *found) {
    (void)name; (void)version; (void)flags;
    *function = (void *)not_supported;
    if (found) *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

struct Memory { unsigned long long total, unused, used; };
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned int room) {
    snprintf(text, room, "%s", DRIVER);
    return 0;
}
/* Torch asks for the memory of each process after a failed allocation: there is none. */
int nvmlDeviceGetHandleByPciBusId_v2(void) { return 0; }
int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned int *count) {
    (void)handle;
    *count = 0;
    return 0;
}
static int not_found(void) { return 6; }
int nvmlDeviceGetGpuFabricInfoV(void) { return not_found(); }
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return not_found(); }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return not_found(); }
int nvmlSystemGetCudaDriverVersion_v2(void) { return not_found(); }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    (void)uuid;
    *handle = NULL;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, struct Memory *found) {
    (void)handle;
    found->total = total;
    found->used = used + taken;
    found->unused = total - found->used;
    return 0;
}
