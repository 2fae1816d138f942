/* cuda.c - device kind "cuda": NVIDIA GPUs as NVML describes them. The library is opened for one question and
 * closed again, so that a program without a question has neither its memory nor its threads. No library, no driver
 * or no GPU: no device, and no word about it. Names and values are of nvml.h (NVML API Reference, driver 450 and
 * later). */
#include "kinds.h"
#include "machine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef void *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_pci {
    char old_id[16];
    unsigned domain, bus, device, pci_id, subsystem_id;
    char id[32];
};

struct nvml_process {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, part; /* of a GPU that is cut in parts */
};
struct nvml_busy {
    unsigned gpu, memory; /* per cent of the last sample of a sixth to one second */
};

struct nvml {
    void *library;
    int (*init)(void), (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, nvml_device *);
    int (*name)(nvml_device, char *, unsigned);
    int (*memory)(nvml_device, struct nvml_memory *);
    int (*pci)(nvml_device, struct nvml_pci *);
    /* not in every driver: NULL where missing */
    int (*capability)(nvml_device, int *, int *);
    int (*cores)(nvml_device, unsigned *);
    int (*max_clock)(nvml_device, int, unsigned *);
    int (*remapped)(nvml_device, unsigned *, unsigned *, unsigned *, unsigned *);
    int (*processes[2])(nvml_device, unsigned *, struct nvml_process *); /* of computing, of graphics */
    int (*busy)(nvml_device, struct nvml_busy *);
    int (*celsius)(nvml_device, int, unsigned *);
    int (*milliwatts)(nvml_device, unsigned *);
    const char *(*error)(int);
};

#define CLOCK_SM 1
#define SENSOR_GPU 0
#define NOT_AVAILABLE (~0ull) /* NVML_VALUE_NOT_AVAILABLE */
#define PROCESSES 512

static bool nvml_open(const struct kc_machine *m, struct nvml *n)
{
    const struct {
        const char *name;
        void **to;
        bool needed;
    } symbols[] = {
        {"nvmlInit_v2", (void **)&n->init, true},
        {"nvmlShutdown", (void **)&n->shutdown, true},
        {"nvmlDeviceGetCount_v2", (void **)&n->count, true},
        {"nvmlDeviceGetHandleByIndex_v2", (void **)&n->handle, true},
        {"nvmlDeviceGetName", (void **)&n->name, true},
        {"nvmlDeviceGetMemoryInfo", (void **)&n->memory, true},
        {"nvmlDeviceGetPciInfo_v3", (void **)&n->pci, true},
        {"nvmlDeviceGetCudaComputeCapability", (void **)&n->capability, false},
        {"nvmlDeviceGetNumGpuCores", (void **)&n->cores, false},
        {"nvmlDeviceGetMaxClockInfo", (void **)&n->max_clock, false},
        {"nvmlDeviceGetRemappedRows", (void **)&n->remapped, false},
        {"nvmlDeviceGetComputeRunningProcesses_v3", (void **)&n->processes[0], false},
        {"nvmlDeviceGetGraphicsRunningProcesses_v3", (void **)&n->processes[1], false},
        {"nvmlDeviceGetUtilizationRates", (void **)&n->busy, false},
        {"nvmlDeviceGetTemperature", (void **)&n->celsius, false},
        {"nvmlDeviceGetPowerUsage", (void **)&n->milliwatts, false},
        {"nvmlErrorString", (void **)&n->error, true},
    };
    memset(n, 0, sizeof *n);
    n->library = dlopen(m->nvml, RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        return false;
    bool good = true;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        *symbols[i].to = dlsym(n->library, symbols[i].name);
        good = good && (*symbols[i].to || !symbols[i].needed);
    }
    if (good && n->init() == 0)
        return true;
    dlclose(n->library);
    return false;
}

static void nvml_close(struct nvml *n)
{
    n->shutdown();
    dlclose(n->library);
}

/* The GPU's NUMA node from sysfs; NVML writes bus ids in upper case with eight digits of domain, the kernel not. */
static void find_numa(const char *root, const struct nvml_pci *pci, struct kc_device *d)
{
    uint64_t numa;
    if (machine_number(root, &numa, "/sys/bus/pci/devices/%04x:%02x:%02x.0/numa_node", pci->domain, pci->bus,
                       pci->device) < 0)
        return; /* also for -1: the kernel does not know */
    d->numa = (uint32_t)numa;
    d->valid |= KC_DEVICE_NUMA;
}

static void describe(const struct nvml *n, nvml_device gpu, const char *root, struct kc_device *d)
{
    struct nvml_memory memory;
    struct nvml_pci pci;
    unsigned cores, mhz;
    int major, minor;
    n->name(gpu, d->model, sizeof d->model);
    if (n->memory(gpu, &memory) == 0) {
        d->memory_total = memory.total;
        d->memory_free = memory.free;
        d->valid |= KC_DEVICE_MEMORY_TOTAL | KC_DEVICE_MEMORY_FREE;
    }
    if (n->pci(gpu, &pci) == 0)
        find_numa(root, &pci, d);
    if (n->capability && n->capability(gpu, &major, &minor) == 0)
        snprintf(d->isa, sizeof d->isa, "sm_%d%d", major, minor);
    if (n->max_clock && n->max_clock(gpu, CLOCK_SM, &mhz) == 0) {
        d->ghz = mhz / 1e3;
        d->valid |= KC_DEVICE_GHZ;
        if (n->cores && n->cores(gpu, &cores) == 0) {
            d->peak_flops = 2.0 * cores * d->ghz * 1e9; /* one fused multiply-add per core and cycle */
            d->valid |= KC_DEVICE_PEAK;
        }
    }
}

int cuda_discover(const struct kc_machine *m, struct kc_devices *list, struct kc_error *e)
{
    struct nvml n;
    unsigned count = 0;
    int r = 0;
    if (!nvml_open(m, &n))
        return 0;
    n.count(&count);
    for (unsigned i = 0; r == 0 && i < count; i++) {
        struct kc_device d = {.kind = "cuda", .number = i, .core = i, .valid = KC_DEVICE_CORE};
        nvml_device gpu;
        snprintf(d.node, sizeof d.node, "%s", m->node);
        snprintf(d.isa, sizeof d.isa, "cuda");
        /* one that does not answer is listed all the same: health says what is wrong with it */
        if (n.handle(i, &gpu) == 0)
            describe(&n, gpu, m->root, &d);
        r = kc_devices_add(list, &d);
    }
    nvml_close(&n);
    return r < 0 ? kc_fail(e, r, "cuda devices: out of memory") : 0;
}

void cuda_describe(const struct kc_machine *m, struct kc_device *d)
{
    struct nvml n;
    nvml_device gpu;
    struct nvml_memory memory;
    if (!nvml_open(m, &n))
        return;
    if (n.handle(d->number, &gpu) == 0 && n.memory(gpu, &memory) == 0) {
        d->memory_free = memory.free;
        d->valid |= KC_DEVICE_MEMORY_FREE;
    }
    nvml_close(&n);
}

bool cuda_health(const struct kc_machine *m, const struct kc_device *d, char *reason, size_t room)
{
    struct nvml n;
    nvml_device gpu = NULL;
    struct nvml_memory memory;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    if (!nvml_open(m, &n)) {
        snprintf(reason, room, "the NVIDIA driver does not answer any more");
        return false;
    }
    int code = n.handle(d->number, &gpu);
    if (code == 0)
        code = n.memory(gpu, &memory);
    if (code != 0)
        snprintf(reason, room, "NVML: %.100s", n.error(code));
    else if (n.remapped && n.remapped(gpu, &corrected, &uncorrected, &pending, &failed) == 0 && (failed || pending)) {
        code = -1;
        snprintf(reason, room, failed ? "its memory has bad rows that cannot be remapped"
                                      : "its memory has bad rows, remapped at the next reset");
    }
    nvml_close(&n);
    return code == 0;
}

static void add_user(struct kc_device_use *use, const struct nvml_process *p)
{
    for (uint32_t i = 0; i < use->users && i < KC_USERS_MAX; i++)
        if (use->user[i].pid == (int32_t)p->pid)
            return; /* it computes and draws */
    if (use->users < KC_USERS_MAX)
        use->user[use->users] = (struct kc_device_user){.pid = (int32_t)p->pid, .uid = KC_NO_USER, .memory = p->memory,
                                                        .memory_known = p->memory != NOT_AVAILABLE};
    use->users++;
}

static void find_users(const struct nvml *n, nvml_device gpu, struct kc_device_use *use)
{
    struct nvml_process at[PROCESSES];
    for (int kind = 0; kind < 2; kind++) {
        unsigned count = PROCESSES;
        if (!n->processes[kind] || n->processes[kind](gpu, &count, at) != 0)
            continue;
        use->valid |= KC_USE_USERS;
        for (unsigned i = 0; i < count && i < PROCESSES; i++)
            add_user(use, &at[i]);
    }
}

void cuda_use(const struct kc_machine *m, const struct kc_device *d, struct kc_device_use *use)
{
    struct nvml n;
    nvml_device gpu;
    struct nvml_busy busy;
    unsigned celsius, milliwatts;
    if (!nvml_open(m, &n))
        return;
    if (n.handle(d->number, &gpu) == 0) {
        if (n.busy && n.busy(gpu, &busy) == 0) {
            use->busy = busy.gpu / 100.0;
            use->valid |= KC_USE_BUSY;
        }
        if (n.celsius && n.celsius(gpu, SENSOR_GPU, &celsius) == 0) {
            use->celsius = celsius;
            use->valid |= KC_USE_CELSIUS;
        }
        if (n.milliwatts && n.milliwatts(gpu, &milliwatts) == 0) {
            use->watts = milliwatts / 1e3;
            use->valid |= KC_USE_WATTS;
        }
        find_users(&n, gpu, use);
    }
    nvml_close(&n);
}
