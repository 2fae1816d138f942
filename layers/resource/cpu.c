/* cpu.c - device kind "cpu": one unit per logical processor that may be used, found with hwloc. The topology is
 * thrown away after discovery; what changes is read from /sys and /proc. */
#include "kinds.h"
#include "machine.h"

#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define CPUS_MAX 8192

/* Vector extensions, best first, and what a core of that kind does in a cycle at best, in fp32 operations: two fused
 * multiply-adds of full width on server cores (portable: SSE2's one addition and one multiplication of four). */
struct isa {
    const char *name;
    double flops_per_cycle;
};

static struct isa best_isa(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return (struct isa){"avx512", 64};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (struct isa){"avx2", 32};
    return (struct isa){"portable", 8};
#elif defined(__aarch64__)
    return (struct isa){"neon", 16};
#else
    return (struct isa){"portable", 2};
#endif
}

/* On x86 the counter that BogoMIPS is twice of runs at the nominal clock. 0 unknown. */
static double counter_ghz(const char *root)
{
    double mips = 0;
#if defined(__x86_64__)
    char text[SMALL_FILE];
    const char *at = NULL;
    if (machine_read(root, text, sizeof text, "/proc/cpuinfo") > 0)
        at = strstr(text, "bogomips");
    if (!at || sscanf(at, "bogomips : %lf", &mips) != 1)
        mips = 0;
#else
    (void)root;
#endif
    return mips / 2000;
}

/* A clock that does not change from one look to the next: the nominal one, else the highest. 0 unknown. */
static double nominal_ghz(const char *root, uint32_t cpu, double counter)
{
    uint64_t khz;
    if (machine_number(root, &khz, "/sys/devices/system/cpu/cpu%u/cpufreq/base_frequency", cpu) == 0)
        return (double)khz / 1e6;
    if (counter > 0)
        return counter;
    if (machine_number(root, &khz, "/sys/devices/system/cpu/cpu%u/cpufreq/cpuinfo_max_freq", cpu) == 0)
        return (double)khz / 1e6;
    return 0;
}

struct finder {
    const struct kc_machine *m;
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed; /* NULL: all */
    struct isa isa;
    double counter_ghz;
    struct kc_devices *list;
    size_t most; /* of this kind; SIZE_MAX no quota */
};

static int add_unit(struct finder *f, hwloc_obj_t pu, uint32_t core, uint32_t sibling)
{
    struct kc_device d = {
        .kind = "cpu", .number = pu->os_index, .core = core, .sibling = sibling, .valid = KC_DEVICE_CORE};
    hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(f->topology, HWLOC_OBJ_PACKAGE, pu);
    const char *model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    int numa = pu->nodeset ? hwloc_bitmap_first(pu->nodeset) : -1;
    hwloc_obj_t node = numa < 0 ? NULL : hwloc_get_numanode_obj_by_os_index(f->topology, (unsigned)numa);

    snprintf(d.node, sizeof d.node, "%s", f->m->node);
    snprintf(d.model, sizeof d.model, "%s", model ? model : "");
    snprintf(d.isa, sizeof d.isa, "%s", f->isa.name);
    if (node) {
        d.numa = (uint32_t)numa;
        d.valid |= KC_DEVICE_NUMA;
        d.memory_total = node->attr->numanode.local_memory;
        d.valid |= d.memory_total ? KC_DEVICE_MEMORY_TOTAL : 0;
    }
    d.ghz = nominal_ghz(f->m->root, d.number, f->counter_ghz);
    if (d.ghz > 0) {
        d.peak_flops = d.ghz * 1e9 * f->isa.flops_per_cycle;
        d.valid |= KC_DEVICE_GHZ | KC_DEVICE_PEAK;
    }
    return kc_devices_add(f->list, &d);
}

/* Every core's unit number `sibling`. *more: some core has a further one. */
static int add_siblings(struct finder *f, uint32_t sibling, bool *more)
{
    int cores = hwloc_get_nbobjs_by_type(f->topology, HWLOC_OBJ_CORE);
    hwloc_obj_type_t type = cores > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int count = hwloc_get_nbobjs_by_type(f->topology, type);
    *more = false;
    for (int i = 0; i < count; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(f->topology, type, (unsigned)i), pu = NULL;
        uint32_t seen = 0;
        while ((pu = hwloc_get_next_obj_inside_cpuset_by_type(f->topology, core->cpuset, HWLOC_OBJ_PU, pu))) {
            if (f->allowed && !hwloc_bitmap_isset(f->allowed, pu->os_index))
                continue;
            if (seen > sibling)
                *more = true;
            if (seen++ != sibling)
                continue;
            if (f->list->count >= f->most)
                return 0;
            int r = add_unit(f, pu, (uint32_t)i, sibling);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int load_topology(struct finder *f, struct kc_error *e)
{
    const char *synthetic = f->m->topology;
    if (hwloc_topology_init(&f->topology) != 0)
        return kc_fail(e, -ENOMEM, "cpu devices: out of memory");
    hwloc_topology_set_all_types_filter(f->topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(f->topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(f->topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    /* NUMA nodes that are a part of a package hang on a group; without it they would seem to span everything */
    hwloc_topology_set_type_filter(f->topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    int bad = synthetic ? hwloc_topology_set_synthetic(f->topology, synthetic) : 0;
    if (bad || hwloc_topology_load(f->topology) != 0)
        return kc_fail(e, -EINVAL, "cpu devices: hwloc cannot load %s",
                       synthetic ? synthetic : "this machine's topology");
    if (synthetic || f->m->whole)
        return 0;
    f->allowed = hwloc_bitmap_alloc();
    if (!f->allowed)
        return kc_fail(e, -ENOMEM, "cpu devices: out of memory");
    if (hwloc_get_cpubind(f->topology, f->allowed, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_fill(f->allowed); /* an OS that cannot tell does not restrict either */
    return 0;
}

int cpu_discover(const struct kc_machine *m, struct kc_devices *list, struct kc_error *e)
{
    struct finder f = {
        .m = m, .isa = best_isa(), .counter_ghz = counter_ghz(m->root), .list = list, .most = SIZE_MAX};
    double quota = m->whole ? 0 : kc_resource_quota(m->root);
    if (quota > 0)
        f.most = list->count + (quota < 1 ? 1 : (size_t)quota);
    int r = load_topology(&f, e);
    bool more = true;
    for (uint32_t sibling = 0; r == 0 && more; sibling++) {
        r = add_siblings(&f, sibling, &more);
        if (r < 0)
            r = kc_fail(e, r, "cpu devices: out of memory");
    }
    if (f.allowed)
        hwloc_bitmap_free(f.allowed);
    if (f.topology)
        hwloc_topology_destroy(f.topology);
    return r;
}

/* Free memory of the unit's NUMA node, with the page cache that the kernel gives back. */
void cpu_describe(const struct kc_machine *m, struct kc_device *d)
{
    char text[SMALL_FILE], key[48];
    static const char *const parts[] = {"MemFree", "Inactive(file)", "SReclaimable"};
    uint64_t sum = 0, kib;
    if ((d->valid & KC_DEVICE_NUMA) &&
        machine_read(m->root, text, sizeof text, "/sys/devices/system/node/node%u/meminfo", d->numa) > 0) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            snprintf(key, sizeof key, "Node %u %s", d->numa, parts[i]);
            sum += machine_keyed(text, key, &kib) ? kib : 0;
        }
    } else if (machine_read(m->root, text, sizeof text, "/proc/meminfo") > 0 &&
               machine_keyed(text, "MemAvailable", &kib)) {
        sum = kib;
    }
    if (sum) {
        d->memory_free = sum * 1024;
        d->valid |= KC_DEVICE_MEMORY_FREE;
    }
}

static bool is_online(const char *root, uint32_t cpu, char *reason, size_t room)
{
    char text[4096];
    uint32_t online[CPUS_MAX];
    size_t count = 0;
    if (machine_read(root, text, sizeof text, "/sys/devices/system/cpu/online") <= 0 ||
        kc_cpus_parse(text, online, CPUS_MAX, &count, NULL) < 0)
        return true; /* cannot be told */
    for (size_t i = 0; i < count; i++)
        if (online[i] == cpu)
            return true;
    text[strcspn(text, "\n")] = 0;
    snprintf(reason, room, "offline in the kernel (online are %.100s)", text);
    return false;
}

bool cpu_health(const struct kc_machine *m, const struct kc_device *d, char *reason, size_t room)
{
    if (!is_online(m->root, d->number, reason, room))
        return false;
    if (m->topology || m->whole || *m->root)
        return true;
    /* the cpuset may have been narrowed since discovery */
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
    bool good = true;
    if (set && sched_getaffinity(0, bytes, set) == 0)
        good = CPU_ISSET_S(d->number, bytes, set);
    if (set)
        CPU_FREE(set);
    if (!good)
        snprintf(reason, room, "no longer in this process's cpuset");
    return good;
}
