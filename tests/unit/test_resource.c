/* test_resource.c - the pool of devices: what is found, how far apart it is, who holds it, and what is refused.
 * Machines are made up with hwloc's synthetic topologies and folders in place of /sys and /proc. */
#include "base/file.h"
#include "base/json.h"
#include "resource/resource.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64]; /* a fresh folder per test */
static struct kc_error e;

static void set_up(void)
{
    snprintf(dir, sizeof dir, "/tmp/kc-test-resource-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    e.text[0] = 0;
}

static void tear_down(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", dir, NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

/* Write a file below dir, folders included. */
static void put(const char *path, const char *text)
{
    char full[512], parent[512];
    snprintf(full, sizeof full, "%s/%s", dir, path);
    snprintf(parent, sizeof parent, "%s", full);
    *strrchr(parent, '/') = 0;
    ck_assert_int_eq(kc_make_dirs(parent), 0);
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(kc_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static struct kc_pool *open_pool(const char *topology)
{
    struct kc_pool_config c = {.run_dir = dir, .node = "n1", .root = dir, .topology = topology, .nvml = "no-such.so"};
    struct kc_pool *p = NULL;
    ck_assert_msg(kc_pool_open(&c, &p, &e) == 0, "%s", e.text);
    return p;
}

static int take(struct kc_pool *p, const char *job, uint32_t ranks, uint32_t units, bool share, struct kc_lease **out)
{
    struct kc_lease_request q = {.kind = "cpu", .ranks = ranks, .units_per_rank = units, .oversubscribe = share,
                                 .job = job, .who = "test"};
    return kc_lease_take(p, &q, out, &e);
}

static enum kc_device_state state_of(struct kc_pool *p, size_t i)
{
    struct kc_device_live live;
    kc_pool_live(p, i, &live);
    return live.state;
}

static const char *units_of(const struct kc_lease *l)
{
    static char text[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    ck_assert_int_eq(kc_lease_units_text(l, text[turn], sizeof text[turn]), 0);
    return text[turn];
}

static void *release_all(struct kc_pool *p, struct kc_lease **l, size_t count)
{
    for (size_t i = 0; i < count; i++)
        l[i] = kc_lease_release(p, l[i]);
    return NULL;
}

/* ---- lists of cpus ---- */

START_TEST(cpu_lists_are_read_and_written)
{
    uint32_t c[16];
    size_t n;
    char text[64];
    ck_assert_int_eq(kc_cpus_parse("0-2,4,9-10\n", c, 16, &n, &e), 0);
    const uint32_t want[] = {0, 1, 2, 4, 9, 10};
    ck_assert_uint_eq(n, 6);
    ck_assert_mem_eq(c, want, sizeof want);
    ck_assert_int_eq(kc_cpus_format(c, n, text, sizeof text), 0);
    ck_assert_str_eq(text, "0-2,4,9-10");
    ck_assert_int_eq(kc_cpus_format(c, n, text, 10), -ENOSPC);
    ck_assert_int_eq(kc_cpus_format(c, n, text, 11), 0);
    ck_assert_int_eq(kc_cpus_parse("0-15", c, 16, &n, &e), 0);
    ck_assert_int_eq(kc_cpus_parse("0-16", c, 16, &n, &e), -ENOSPC);
    static const char *const bad[] = {"", ",", "1,", "1-", "-1", "a", "1 2", "3-1", "1,1", "2,1", "1,1-2", "65536",
                                      "99999999999", "1-2-3", "0x1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        n = 77;
        ck_assert_msg(kc_cpus_parse(bad[i], c, 16, &n, &e) == -EINVAL, "'%s' was taken", bad[i]);
        ck_assert_uint_eq(n, 77);
    }
}
END_TEST

START_TEST(a_process_binds_itself_to_its_cores)
{
    cpu_set_t set, want;
    sched_getaffinity(0, sizeof set, &set);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &set))
        cpu++;
    char text[16];
    snprintf(text, sizeof text, "%d", cpu);
    ck_assert_int_eq(kc_resource_bind(text, &e), 0);
    CPU_ZERO(&want);
    CPU_SET(cpu, &want);
    sched_getaffinity(0, sizeof set, &set);
    ck_assert(CPU_EQUAL(&set, &want));
    ck_assert(kc_resource_spare_core(0, false)); /* one cpu: to spare beside no thread that computes */
    ck_assert(!kc_resource_spare_core(1, false));
    ck_assert(!kc_resource_spare_core(0, true));
    ck_assert_int_eq(kc_resource_bind("8000", &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "8000"));
}
END_TEST

/* What works in the background keeps off the ranks' cpus, as long as there are others. */
START_TEST(background_threads_take_what_no_rank_has)
{
    static const struct {
        const char *allowed, *leases, *wanted;
    } rows[] = {{"0-7", "cpu:0-1;cpu:4", "2-3,5-7"}, {"0-1", "cpu:0;cpu:1", "0-1"}, {"2-3", "cpu:0;cpu:1", "2-3"},
                {"0-3", "cpu*:0-1;cpu*:0-1", "2-3"}};
    char out[KC_CPUS_TEXT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct kc_lease *lease[2] = {NULL, NULL};
        ck_assert_int_eq(kc_leases_parse(rows[i].leases, 2, lease, &e), 0);
        ck_assert_int_eq(kc_resource_background(rows[i].allowed, lease, 2, out, sizeof out), 0);
        ck_assert_str_eq(out, rows[i].wanted);
        ck_assert_int_eq(kc_resource_background(rows[i].allowed, lease, 2, out, 2), -ENOSPC);
        for (int k = 0; k < 2; k++)
            kc_lease_release(NULL, lease[k]);
    }
    ck_assert_int_eq(kc_resource_background("", NULL, 0, out, sizeof out), -EINVAL);
    ck_assert_int_eq(kc_resource_allowed(out, sizeof out), 0);
    ck_assert_int_eq(kc_resource_bind(out, &e), 0); /* the same list, read and written */
    char again[KC_CPUS_TEXT];
    ck_assert_int_eq(kc_resource_allowed(again, sizeof again), 0);
    ck_assert_str_eq(out, again);
}
END_TEST

/* ---- what is found ---- */

START_TEST(this_machine_has_the_cpus_that_this_process_may_use)
{
    struct kc_pool_config c = {.run_dir = dir};
    struct kc_pool *p = NULL;
    cpu_set_t set;
    size_t cpus = 0;
    ck_assert_msg(kc_pool_open(&c, &p, &e) == 0, "%s", e.text);
    sched_getaffinity(0, sizeof set, &set);
    for (size_t i = 0; i < kc_pool_count(p); i++) {
        const struct kc_device *d = kc_pool_device(p, i);
        if (strcmp(d->kind, "cpu") != 0)
            continue;
        cpus++;
        ck_assert(CPU_ISSET(d->number, &set));
        ck_assert_int_eq(state_of(p, i), KC_DEVICE_IDLE);
        ck_assert(strcmp(d->isa, "avx512") == 0 || strcmp(d->isa, "avx2") == 0 || strcmp(d->isa, "neon") == 0 ||
                  strcmp(d->isa, "portable") == 0);
        if (d->valid & KC_DEVICE_PEAK)
            ck_assert(d->peak_flops > 1e9 && d->peak_flops < 1e12);
        if (d->valid & KC_DEVICE_MEMORY_FREE)
            ck_assert_uint_gt(d->memory_free, 0);
    }
    double quota = kc_resource_quota("");
    size_t want = (size_t)CPU_COUNT(&set);
    if (quota > 0 && quota < (double)want)
        want = quota < 1 ? 1 : (size_t)quota;
    ck_assert_uint_eq(cpus, want);
    kc_pool_close(p);
}
END_TEST

START_TEST(a_cpu_list_that_was_narrowed_narrows_the_pool)
{
    cpu_set_t set, one;
    sched_getaffinity(0, sizeof set, &set);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &set))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    struct kc_pool_config c = {.run_dir = dir, .nvml = "no-such.so"};
    struct kc_pool *p = NULL, *whole = NULL;
    ck_assert_int_eq(kc_pool_open(&c, &p, &e), 0);
    ck_assert_uint_eq(kc_pool_count(p), 1);
    ck_assert_uint_eq(kc_pool_device(p, 0)->number, (uint32_t)cpu);
    c.run_dir = NULL; /* a rank, bound to its own cores, still describes all of its job's */
    ck_assert_int_eq(kc_pool_open(&c, &whole, &e), 0);
    ck_assert_uint_ge(kc_pool_count(whole), (size_t)CPU_COUNT(&set));
    ck_assert_int_eq(state_of(whole, 0), KC_DEVICE_UNKNOWN);
    kc_pool_close(p);
    kc_pool_close(whole);
}
END_TEST

START_TEST(siblings_of_a_core_come_last_and_share_its_peak)
{
    struct kc_pool *p = open_pool("numa:2 core:2 pu:2"); /* cpus 0 1 | 2 3 || 4 5 | 6 7 */
    static const uint32_t order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    ck_assert_uint_eq(kc_pool_count(p), 8);
    for (size_t i = 0; i < 8; i++) {
        const struct kc_device *d = kc_pool_device(p, i);
        ck_assert_uint_eq(d->number, order[i]);
        ck_assert_uint_eq(d->sibling, i / 4);
        ck_assert_uint_eq(d->core, order[i] / 2);
        ck_assert(d->valid & KC_DEVICE_NUMA);
        ck_assert_uint_eq(d->numa, order[i] / 4);
    }
    kc_pool_close(p);
}
END_TEST

static void fake_cgroup2(const char *cpu_max)
{
    put("proc/self/cgroup", "0::/user/job\n");
    put("proc/self/mountinfo", "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
    put("proc/meminfo", "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:   800 kB\n");
    put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
    put("sys/fs/cgroup/user/memory.max", "300000\n");
    put("sys/fs/cgroup/user/memory.current", "250000\n");
    put("sys/fs/cgroup/user/memory.stat", "anon 100\nfile 90000\ninactive_file 40000\nactive_file 1\n");
    put("sys/fs/cgroup/user/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/user/job/cgroup.procs", "");
    put("sys/fs/cgroup/user/job/memory.max", "max\n");
    put("sys/fs/cgroup/user/job/memory.current", "7\n");
    put("sys/fs/cgroup/user/job/cpu.max", cpu_max);
}

START_TEST(headroom_is_that_of_the_tightest_cgroup_above)
{
    struct kc_memory m;
    fake_cgroup2("150000 100000\n");
    ck_assert_int_eq(kc_resource_memory(dir, &m), 0);
    ck_assert_uint_eq(m.total, 1000 * 1024);
    ck_assert_uint_eq(m.available, 800 * 1024);
    ck_assert(m.limited);
    ck_assert_uint_eq(m.limit, 300000);
    ck_assert_uint_eq(m.used, 210000);
    ck_assert_uint_eq(m.headroom, 90000);
    ck_assert_uint_eq(kc_memory_room(&m), 90000);
    put("sys/fs/cgroup/user/job/memory.max", "900000\n"); /* a looser one below does not count */
    ck_assert_int_eq(kc_resource_memory(dir, &m), 0);
    ck_assert_uint_eq(m.headroom, 90000);
    put("sys/fs/cgroup/user/job/memory.max", "80007\n"); /* a tighter one does */
    ck_assert_int_eq(kc_resource_memory(dir, &m), 0);
    ck_assert_uint_eq(m.headroom, 80000);
    ck_assert_double_eq_tol(kc_resource_quota(dir), 1.5, 1e-12);
}
END_TEST

START_TEST(version_1_cgroups_are_read_too_and_a_path_of_the_host_is_not_followed)
{
    struct kc_memory m;
    put("proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n");
    put("proc/self/mountinfo",
        "31 30 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "32 30 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 50 kB\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
    put("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 20000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    ck_assert_int_eq(kc_resource_memory(dir, &m), 0);
    ck_assert_uint_eq(m.headroom, 320000);
    ck_assert_uint_eq(kc_memory_room(&m), 50 * 1024); /* the machine itself has less */
    ck_assert_double_eq(kc_resource_quota(dir), 0);
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
    ck_assert_double_eq_tol(kc_resource_quota(dir), 0.5, 1e-12);
}
END_TEST

START_TEST(no_cgroup_is_no_limit_and_no_meminfo_an_error)
{
    struct kc_memory m = {.total = 5};
    ck_assert_int_eq(kc_resource_memory(dir, &m), -ENOENT);
    ck_assert_uint_eq(m.total, 5);
    put("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 50 kB\n");
    ck_assert_int_eq(kc_resource_memory(dir, &m), 0);
    ck_assert(!m.limited);
    ck_assert_double_eq(kc_resource_quota(dir), 0);
}
END_TEST

START_TEST(a_cpu_quota_bounds_the_pool)
{
    fake_cgroup2("250000 100000\n");
    struct kc_pool *p = open_pool("numa:1 core:4 pu:2");
    ck_assert_uint_eq(kc_pool_count(p), 2); /* 2.5 cpus: two whole ones, on two cores */
    ck_assert_uint_eq(kc_pool_device(p, 1)->number, 2);
    kc_pool_close(p);
    fake_cgroup2("10000 100000\n");
    p = open_pool("numa:1 core:4 pu:2");
    ck_assert_uint_eq(kc_pool_count(p), 1);
    kc_pool_close(p);
}
END_TEST

START_TEST(no_nvml_means_no_gpus_and_no_word_about_it)
{
    struct kc_lease *l[1];
    struct kc_pool *p = open_pool("numa:1 core:1 pu:1");
    ck_assert_uint_eq(kc_pool_count(p), 1);
    struct kc_lease_request q = {.kind = "cuda", .ranks = 1, .units_per_rank = 1, .job = "a-1", .who = "test"};
    ck_assert_int_eq(kc_lease_take(p, &q, l, &e), -ERANGE);
    ck_assert_str_eq(e.text, "asked for 1 rank × 1 GPU, this machine has none; choose another \"device\"");
    q.kind = "tpu";
    ck_assert_int_eq(kc_lease_take(p, &q, l, &e), -ENOENT);
    ck_assert_str_eq(e.text, "device: there is no kind 'tpu'; known: cpu, cuda");
    kc_pool_close(p);
}
END_TEST

/* A library with NVML's functions: two GPUs, of which one has lost its bus, and a switch for bad memory. */
static const char fake_nvml[] =
    "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n"
    "struct memory { unsigned long long total, free, used; };\n"
    "struct pci { char old[16]; unsigned domain, bus, device, id, sub; char text[32]; };\n"
    "int nvmlInit_v2(void) { return 0; }\nint nvmlShutdown(void) { return 0; }\n"
    "int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }\n"
    "int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(i + 1ul); return i == 1 ? 15 : 0; }\n"
    "int nvmlDeviceGetName(void *d, char *s, unsigned n) { strncpy(s, \"Test GPU\", n); return 0; }\n"
    "int nvmlDeviceGetMemoryInfo(void *d, struct memory *m) { m->total = 100; m->free = 60; return 0; }\n"
    "int nvmlDeviceGetPciInfo_v3(void *d, struct pci *p) { memset(p, 0, sizeof *p); p->bus = 0xb3; return 0; }\n"
    "int nvmlDeviceGetCudaComputeCapability(void *d, int *a, int *b) { *a = 9; *b = 0; return 0; }\n"
    "int nvmlDeviceGetNumGpuCores(void *d, unsigned *n) { *n = 1000; return 0; }\n"
    "int nvmlDeviceGetMaxClockInfo(void *d, int k, unsigned *mhz) { *mhz = 2000; return k == 1 ? 0 : 2; }\n"
    "int nvmlDeviceGetRemappedRows(void *d, unsigned *c, unsigned *u, unsigned *p, unsigned *f)\n"
    "{ *f = access(getenv(\"KC_TEST_BAD_ROWS\"), F_OK) == 0; return 0; }\n"
    "struct process { unsigned pid; unsigned long long memory; unsigned a, b; };\n"
    "struct busy { unsigned gpu, memory; };\n"
    "int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, struct process *p)\n"
    "{ if (*n < 2) return 7; *n = 2; p[0].pid = 4411; p[0].memory = 30; p[1].pid = 4412; p[1].memory = ~0ull; return 0; }\n"
    "int nvmlDeviceGetGraphicsRunningProcesses_v3(void *d, unsigned *n, struct process *p)\n"
    "{ *n = 1; p[0].pid = 4411; p[0].memory = 5; return 0; }\n"
    "int nvmlDeviceGetUtilizationRates(void *d, struct busy *b) { b->gpu = 75; b->memory = 9; return 0; }\n"
    "int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *c) { *c = 61; return sensor; }\n"
    "int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { *mw = 312500; return 0; }\n"
    "const char *nvmlErrorString(int code) { return code == 15 ? \"GPU is lost\" : \"?\"; }\n";

/* False: there is no compiler here. */
static bool build_nvml(char *library, size_t room)
{
    char source[128];
    int status;
    snprintf(source, sizeof source, "%s/fake.c", dir);
    snprintf(library, room, "%s/fake.so", dir);
    put("fake.c", fake_nvml);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("cc", "cc", "-shared", "-fPIC", "-w", "-o", library, source, NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    return status == 0;
}

START_TEST(gpus_are_described_leased_and_watched_through_nvml)
{
    char library[128], rows[128];
    snprintf(rows, sizeof rows, "%s/bad-rows", dir);
    if (!build_nvml(library, sizeof library))
        return;
    setenv("KC_TEST_BAD_ROWS", rows, 1);
    put("sys/bus/pci/devices/0000:b3:00.0/numa_node", "0\n");
    struct kc_pool_config c = {
        .run_dir = dir, .node = "n1", .root = dir, .topology = "numa:1 core:1 pu:1", .nvml = library};
    struct kc_pool *p = NULL;
    struct kc_lease *l[2];
    struct kc_device_live live;
    ck_assert_msg(kc_pool_open(&c, &p, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(kc_pool_count(p), 3);
    const struct kc_device *gpu = kc_pool_device(p, 1);
    ck_assert_str_eq(gpu->kind, "cuda");
    ck_assert_str_eq(gpu->model, "Test GPU");
    ck_assert_str_eq(gpu->isa, "sm_90");
    ck_assert_uint_eq(gpu->memory_total, 100);
    ck_assert_uint_eq(gpu->memory_free, 60);
    ck_assert(gpu->valid & KC_DEVICE_NUMA);
    ck_assert_double_eq_tol(gpu->peak_flops, 2.0 * 1000 * 2e9, 1);
    ck_assert_int_eq(kc_device_distance(gpu, kc_pool_device(p, 0)), KC_DISTANCE_NUMA);
    ck_assert_uint_eq(kc_pool_device(p, 2)->valid, KC_DEVICE_CORE); /* unknown, not zero */
    kc_pool_live(p, 2, &live);
    ck_assert_int_eq(live.state, KC_DEVICE_FAULTY);
    ck_assert_str_eq(live.reason, "NVML: GPU is lost");
    struct kc_lease_request q = {.kind = "cuda", .ranks = 2, .units_per_rank = 1, .job = "a-1", .who = "test"};
    ck_assert_int_eq(kc_lease_take(p, &q, l, &e), -EBUSY);
    ck_assert_str_eq(e.text,
                     "asked for 2 ranks × 1 GPU, 2 GPUs are there, 1 faulty (cuda-1: NVML: GPU is lost); it can "
                     "start when enough are free");
    q.ranks = 1;
    ck_assert_int_eq(kc_lease_take(p, &q, l, &e), 0);
    put("bad-rows", "");
    kc_pool_live(p, 1, &live);
    ck_assert_int_eq(live.state, KC_DEVICE_FAULTY);
    ck_assert(live.leased);
    ck_assert_str_eq(live.reason, "its memory has bad rows that cannot be remapped");
    unlink(rows);
    ck_assert_int_eq(state_of(p, 1), KC_DEVICE_LEASED);
    kc_lease_release(p, l[0]);
    kc_pool_close(p);
}
END_TEST

START_TEST(a_gpu_tells_how_busy_it_is_and_who_uses_it)
{
    char library[128], link[128];
    static struct kc_device_use use;
    struct kc_pool *p = NULL;
    struct stat st;
    if (!build_nvml(library, sizeof library))
        return;
    struct kc_pool_config c = {.run_dir = dir, .node = "n1", .root = dir, .topology = "numa:1 core:1 pu:1", .nvml = library};
    snprintf(link, sizeof link, "%s/proc/self/ns/pid", dir);
    put("proc/self/ns/here", "");
    put("proc/4411/comm", "python\n");
    ck_assert_int_eq(symlink("pid:[4026531836]", link), 0);
    ck_assert_int_eq(kc_pool_open(&c, &p, &e), 0);
    kc_pool_use(p, 1, &use);
    ck_assert_uint_eq(use.valid, KC_USE_BUSY | KC_USE_CELSIUS | KC_USE_WATTS | KC_USE_USERS);
    ck_assert_double_eq(use.busy, 0.75);
    ck_assert_double_eq(use.celsius, 61);
    ck_assert_double_eq(use.watts, 312.5);
    ck_assert_uint_eq(use.users, 2); /* who computes and draws counts once */
    ck_assert_int_eq(use.user[0].pid, 4411);
    ck_assert_uint_eq(use.user[0].memory, 30);
    ck_assert_int_eq(stat(dir, &st), 0);
    ck_assert_uint_eq(use.user[0].uid, st.st_uid);
    ck_assert_str_eq(use.user[0].name, "python");
    ck_assert(use.user[0].memory_known && !use.user[1].memory_known);
    ck_assert_uint_eq(use.user[1].uid, KC_NO_USER); /* it has ended meanwhile */
    kc_pool_use(p, 2, &use); /* the one that is lost */
    ck_assert_uint_eq(use.valid, 0);
    kc_pool_use(p, 0, &use); /* a cpu has no driver */
    ck_assert_uint_eq(use.valid, 0);
    unlink(link); /* in a container the same number is another process */
    ck_assert_int_eq(symlink("pid:[4026532201]", link), 0);
    kc_pool_use(p, 1, &use);
    ck_assert_uint_eq(use.users, 2);
    ck_assert_uint_eq(use.user[0].uid, KC_NO_USER);
    ck_assert_str_eq(use.user[0].name, "");
    kc_pool_close(p);
}
END_TEST

START_TEST(ticks_and_load_are_read_as_the_kernel_writes_them)
{
    struct kc_cpu_ticks t[3];
    double load[3] = {7, 7, 7};
    ck_assert_int_eq(kc_resource_ticks(dir, t, 3), -ENOENT);
    ck_assert_int_eq(kc_resource_load(dir, load), -ENOENT);
    ck_assert_double_eq(load[2], 7);
    put("proc/stat", "cpu  30 0 3 300 33 0 0 0 0 0\ncpu0 10 1 2 100 20 3 4 5 6 7\ncpu3 20 0 1 200 13 0 0 0 0 0\nintr 12 0\ncpu4 1 1");
    put("proc/loadavg", "0.52 0.40 12.31 2/345 6789\n");
    ck_assert_int_eq(kc_resource_ticks(dir, t, 3), 2); /* a cpu that is offline is not there; a line that is cut is none */
    ck_assert_uint_eq(t[0].cpu, 0);
    ck_assert_uint_eq(t[0].all, 10 + 1 + 2 + 100 + 20 + 3 + 4 + 5); /* guests are in user time */
    ck_assert_uint_eq(t[0].busy, 10 + 1 + 2 + 3 + 4 + 5);
    ck_assert_uint_eq(t[1].cpu, 3);
    ck_assert_uint_eq(t[1].busy, 21);
    ck_assert_int_eq(kc_resource_ticks(dir, t, 1), 1);
    ck_assert_int_eq(kc_resource_load(dir, load), 0);
    ck_assert_double_eq(load[0], 0.52);
    ck_assert_double_eq(load[2], 12.31);
}
END_TEST

/* ---- leases ---- */

START_TEST(a_double_lease_is_refused_with_numbers_and_holder)
{
    struct kc_pool *p = open_pool("numa:1 core:2 pu:1"), *other = open_pool("numa:1 core:2 pu:1");
    struct kc_lease *a[1], *b[2] = {NULL, NULL};
    struct kc_device_live live;
    ck_assert_int_eq(take(p, "a-1", 1, 1, false, a), 0);
    kc_pool_live(other, 0, &live);
    ck_assert_int_eq(live.state, KC_DEVICE_LEASED);
    ck_assert(!live.shared);
    ck_assert_str_eq(live.job, "a-1");
    ck_assert_int_eq(live.taker, getpid());
    ck_assert_int_eq(take(other, "b-1", 2, 1, false, b), -EBUSY);
    ck_assert_str_eq(
        e.text,
        "asked for 2 ranks × 1 core, 2 cores are there, 1 leased to 'a-1'; it can start when enough are free");
    /* all or nothing: the unit that was free still is */
    ck_assert_int_eq(state_of(p, 1), KC_DEVICE_IDLE);
    ck_assert_ptr_null(b[0]);
    ck_assert_int_eq(take(other, "b-1", 1, 1, false, b), 0);
    ck_assert_str_eq(units_of(b[0]), "1");
    release_all(p, a, 1);
    ck_assert_int_eq(state_of(other, 0), KC_DEVICE_IDLE);
    release_all(other, b, 1);
    kc_pool_close(p);
    kc_pool_close(other);
}
END_TEST

START_TEST(a_lock_that_cannot_be_had_gives_back_those_before_it)
{
    struct kc_pool *p = open_pool("numa:1 core:3 pu:1");
    struct kc_lease *l[3] = {NULL, NULL, NULL};
    put("devices/n1/cpu-2/in-the-way", "");
    ck_assert_int_eq(take(p, "a-1", 3, 1, false, l), -EISDIR);
    ck_assert_ptr_nonnull(strstr(e.text, "devices/n1/cpu-2: the lock file cannot be opened"));
    ck_assert_ptr_null(l[0]);
    ck_assert_int_eq(state_of(p, 0), KC_DEVICE_IDLE);
    ck_assert_int_eq(state_of(p, 1), KC_DEVICE_IDLE);
    kc_pool_close(p);
}
END_TEST

START_TEST(who_only_looks_sees_leases_and_changes_nothing)
{
    char none[128];
    struct kc_pool_config c = {.run_dir = dir,
                               .look = true,
                               .node = "n1",
                               .root = dir,
                               .topology = "numa:1 core:2 pu:1",
                               .nvml = "no-such.so"};
    struct kc_pool *p = open_pool("numa:1 core:2 pu:1"), *look = NULL;
    struct kc_lease *l[1], *m[1];
    ck_assert_int_eq(take(p, "a-1", 1, 1, false, l), 0);
    ck_assert_int_eq(kc_pool_open(&c, &look, &e), 0);
    ck_assert_int_eq(state_of(look, 0), KC_DEVICE_LEASED);
    ck_assert_int_eq(state_of(look, 1), KC_DEVICE_IDLE);
    ck_assert_int_eq(take(look, "b-1", 1, 1, false, m), -EROFS);
    ck_assert_int_eq(kc_pool_mark(look, 1, "x", &e), -EINVAL);
    kc_pool_close(look);
    snprintf(none, sizeof none, "%s/none", dir);
    c.run_dir = none;
    ck_assert_int_eq(kc_pool_open(&c, &look, &e), 0);
    ck_assert_int_eq(state_of(look, 0), KC_DEVICE_IDLE);
    ck_assert_int_ne(access(none, F_OK), 0);
    kc_pool_close(look);
    release_all(p, l, 1);
    kc_pool_close(p);
}
END_TEST

START_TEST(more_than_there_is_can_never_be_and_says_so)
{
    struct kc_pool *p = open_pool("numa:1 core:2 pu:1");
    struct kc_lease *l[4];
    ck_assert_int_eq(take(p, "a-1", 3, 1, false, l), -ERANGE);
    ck_assert_str_eq(e.text,
                     "asked for 3 ranks × 1 core, this machine has 2 cores; lower \"ranks\" or \"threads\", or set "
                     "\"oversubscribe\": true to share");
    ck_assert_int_eq(take(p, "a-1", 1, 3, false, l), -ERANGE);
    ck_assert_int_eq(take(p, "a-1", 0, 1, false, l), -EINVAL);
    ck_assert_int_eq(take(p, "a-1", 1, 0, false, l), -EINVAL);
    ck_assert_int_eq(take(p, "a-1", 65, 1, true, l), -EINVAL);
    struct kc_lease_request q = {.kind = "cpu", .ranks = 3, .units_per_rank = 1};
    ck_assert_int_eq(kc_lease_possible(p, &q, &e), -ERANGE);
    q.oversubscribe = true;
    ck_assert_int_eq(kc_lease_possible(p, &q, &e), 0);
    kc_pool_close(p);
}
END_TEST

/* Wait for the process to be gone; a killed child's descriptors are closed when it can be reaped. */
static void kill_and_reap(pid_t pid)
{
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(a_lease_ends_with_the_last_process_that_inherited_it)
{
    struct kc_pool *p = open_pool("numa:1 core:1 pu:1");
    struct kc_lease *l[1];
    ck_assert_int_eq(take(p, "a-1", 1, 1, false, l), 0);
    pid_t rank = fork();
    if (rank == 0)
        for (;;)
            pause();
    l[0] = kc_lease_release(p, l[0]); /* the keeper is gone, its rank is not */
    ck_assert_int_eq(state_of(p, 0), KC_DEVICE_LEASED);
    ck_assert_int_eq(take(p, "b-1", 1, 1, false, l), -EBUSY);
    kill_and_reap(rank);
    ck_assert_int_eq(state_of(p, 0), KC_DEVICE_IDLE);
    ck_assert_int_eq(take(p, "b-1", 1, 1, false, l), 0);
    release_all(p, l, 1);
    kc_pool_close(p);
}
END_TEST

START_TEST(a_lease_passes_exec_only_where_it_is_let)
{
    struct kc_pool *p = open_pool("numa:1 core:2 pu:1");
    struct kc_lease *l[2];
    pid_t child[2];
    int gate[2];
    ck_assert_int_eq(take(p, "a-1", 2, 1, false, l), 0);
    ck_assert_int_eq(pipe(gate), 0);
    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            if (i == 0)
                kc_lease_inherit(l[0], true);
            dup2(gate[0], 0);
            close(gate[0]);
            close(gate[1]);
            execlp("cat", "cat", NULL); /* lives until we close the pipe */
            _exit(127);
        }
    }
    release_all(p, l, 2);
    for (int i = 0; i < 5000 && state_of(p, 1) == KC_DEVICE_LEASED; i++) /* until the second child's exec closed it */
        usleep(1000);
    ck_assert_int_eq(state_of(p, 1), KC_DEVICE_IDLE);
    ck_assert_int_eq(state_of(p, 0), KC_DEVICE_LEASED);
    kill_and_reap(child[0]);
    kill_and_reap(child[1]);
    ck_assert_int_eq(state_of(p, 0), KC_DEVICE_IDLE);
    kc_pool_close(p);
}
END_TEST

START_TEST(a_marked_device_is_faulty_until_the_mark_is_gone)
{
    struct kc_pool *p = open_pool("numa:1 core:2 pu:1");
    struct kc_lease *l[2];
    struct kc_device_live live;
    ck_assert_int_eq(kc_pool_mark(p, 1, "bad fan", &e), 0);
    kc_pool_live(p, 1, &live);
    ck_assert_int_eq(live.state, KC_DEVICE_FAULTY);
    ck_assert_str_eq(live.reason, "marked by hand: bad fan");
    ck_assert_int_eq(take(p, "a-1", 2, 1, false, l), -EBUSY);
    ck_assert_str_eq(e.text,
                     "asked for 2 ranks × 1 core, 2 cores are there, 1 faulty (cpu-1: marked by hand: bad fan); it "
                     "can start when enough are free");
    ck_assert_int_eq(take(p, "a-1", 1, 1, false, l), 0);
    ck_assert_str_eq(units_of(l[0]), "0");
    release_all(p, l, 1);
    ck_assert_int_eq(kc_pool_mark(p, 1, NULL, &e), 0);
    ck_assert_int_eq(state_of(p, 1), KC_DEVICE_IDLE);
    put("devices/n1/cpu-0.faulty", ""); /* an operator's touch(1) is enough */
    kc_pool_live(p, 0, &live);
    ck_assert_str_eq(live.reason, "marked by hand: no reason given");
    kc_pool_close(p);
}
END_TEST

START_TEST(a_core_that_goes_offline_is_faulty_and_heals)
{
    put("sys/devices/system/cpu/online", "0-1\n");
    struct kc_pool *p = open_pool("numa:1 core:2 pu:1");
    struct kc_device_live live;
    ck_assert_int_eq(state_of(p, 1), KC_DEVICE_IDLE);
    put("sys/devices/system/cpu/online", "0\n");
    kc_pool_live(p, 1, &live);
    ck_assert_int_eq(live.state, KC_DEVICE_FAULTY);
    ck_assert_str_eq(live.reason, "offline in the kernel (online are 0)");
    put("sys/devices/system/cpu/online", "0-1\n");
    ck_assert_int_eq(state_of(p, 1), KC_DEVICE_IDLE);
    kc_pool_close(p);
}
END_TEST

START_TEST(oversubscribed_ranks_share_but_not_with_one_that_wants_its_own)
{
    struct kc_pool *p = open_pool("numa:1 core:2 pu:1");
    struct kc_lease *a[5], *b[1], *c[2];
    struct kc_device_live live;
    ck_assert_int_eq(take(p, "a-1", 5, 1, true, a), 0);
    ck_assert_str_eq(units_of(a[0]), "0");
    ck_assert_str_eq(units_of(a[1]), "1");
    ck_assert_str_eq(units_of(a[2]), "0");
    ck_assert(kc_lease_shared(a[0]));
    kc_pool_live(p, 0, &live);
    ck_assert(live.leased && live.shared);
    ck_assert_int_eq(take(p, "b-1", 1, 1, false, b), -EBUSY);
    ck_assert_int_eq(take(p, "c-1", 2, 4, true, c), 0); /* four threads on what there is */
    ck_assert_str_eq(units_of(c[0]), "0-1");
    release_all(p, a, 5);
    release_all(p, c, 2);
    ck_assert_int_eq(take(p, "b-1", 1, 1, false, b), 0);
    ck_assert_int_eq(take(p, "c-1", 2, 1, true, c), 0); /* both on the core that is left */
    ck_assert_str_eq(units_of(c[1]), "1");
    release_all(p, c, 2);
    release_all(p, b, 1);
    kc_pool_close(p);
}
END_TEST

/* In whatever order they end: who is named holds it, and the rank is that job's. */
START_TEST(who_shared_a_device_and_ended_is_not_named)
{
    struct kc_pool *p = open_pool("numa:1 core:1 pu:1");
    struct kc_lease *a[1], *b[2], *c[1];
    struct kc_device_live live;
    ck_assert_int_eq(take(p, "long-job-that-stays-1", 1, 1, true, a), 0);
    ck_assert_int_eq(take(p, "b-1", 2, 1, true, b), 0);
    release_all(p, b, 2);
    kc_pool_live(p, 0, &live);
    ck_assert(live.shared);
    ck_assert_str_eq(live.job, "long-job-that-stays-1");
    ck_assert_int_eq(take(p, "c-1", 1, 1, true, c), 0);
    release_all(p, a, 1);
    kc_pool_live(p, 0, &live);
    ck_assert_str_eq(live.job, "c-1");
    ck_assert_int_eq(take(p, "a-2", 1, 1, false, a), -EBUSY);
    release_all(p, c, 1);
    ck_assert_int_eq(state_of(p, 0), KC_DEVICE_IDLE);
    ck_assert_int_eq(take(p, "a-2", 1, 1, false, a), 0);
    ck_assert_int_eq(take(p, "c-2", 1, 1, true, c), -EBUSY);
    kc_pool_live(p, 0, &live);
    ck_assert(!live.shared);
    ck_assert_str_eq(live.job, "a-2");
    release_all(p, a, 1);
    kc_pool_close(p);
}
END_TEST

START_TEST(shared_cores_that_nobody_uses_are_dealt_first)
{
    struct kc_pool *p = open_pool("numa:1 core:3 pu:1");
    struct kc_lease *a[1], *b[2];
    ck_assert_int_eq(take(p, "a-1", 1, 1, true, a), 0);
    ck_assert_int_eq(take(p, "b-1", 2, 1, true, b), 0);
    ck_assert_str_eq(units_of(b[0]), "1");
    ck_assert_str_eq(units_of(b[1]), "2");
    release_all(p, a, 1);
    release_all(p, b, 2);
    kc_pool_close(p);
}
END_TEST

START_TEST(a_rank_gets_cores_of_one_numa_node_and_a_job_stays_together)
{
    struct kc_pool *p = open_pool("numa:2 core:4 pu:1");
    struct kc_lease *a[1], *b[2], *c[1], *d[1];
    ck_assert_int_eq(take(p, "a-1", 1, 2, false, a), 0);
    ck_assert_str_eq(units_of(a[0]), "0-1");
    ck_assert_int_eq(take(p, "b-1", 2, 2, false, b), 0); /* four fit only on the second node */
    ck_assert_str_eq(units_of(b[0]), "4-5");
    ck_assert_str_eq(units_of(b[1]), "6-7");
    ck_assert_int_eq(take(p, "c-1", 1, 2, false, c), 0);
    ck_assert_str_eq(units_of(c[0]), "2-3");
    release_all(p, c, 1);
    release_all(p, b, 2);
    ck_assert_int_eq(take(p, "c-1", 1, 2, false, c), 0); /* the tightest node that has room */
    ck_assert_str_eq(units_of(c[0]), "2-3");
    release_all(p, c, 1);
    ck_assert_int_eq(take(p, "d-1", 1, 5, false, d), 0); /* no node has five: across both */
    ck_assert_str_eq(units_of(d[0]), "2,4-7");
    release_all(p, d, 1);
    release_all(p, a, 1);
    kc_pool_close(p);
}
END_TEST

START_TEST(callers_are_counted_in_the_ledger)
{
    struct kc_pool *p = open_pool("numa:1 core:2 pu:1");
    struct kc_lease *l[2];
    struct kc_pool_ledger_row row;
    ck_assert_int_eq(kc_pool_ledger(p, 0, &row), -ENOENT);
    ck_assert_int_eq(take(p, "a-1", 2, 1, false, l), 0);
    struct kc_lease_request q = {.kind = "cpu", .ranks = 1, .units_per_rank = 1, .job = "x", .who = "stranger"};
    ck_assert_int_eq(kc_lease_take(p, &q, l, &e), -EBUSY);
    release_all(p, l, 2);
    ck_assert_int_eq(kc_pool_ledger(p, 0, &row), 0);
    ck_assert_str_eq(row.who, "test");
    ck_assert_uint_eq(row.taken, 2);
    ck_assert_uint_eq(row.released, 2);
    ck_assert_uint_eq(row.refused, 0);
    ck_assert_int_eq(kc_pool_ledger(p, 1, &row), 0);
    ck_assert_str_eq(row.who, "stranger");
    ck_assert_uint_eq(row.refused, 1);
    kc_pool_close(p);
}
END_TEST

START_TEST(leases_travel_as_text)
{
    struct kc_pool *p = open_pool("numa:1 core:4 pu:1");
    struct kc_lease *l[2], *m[2] = {NULL, NULL};
    char text[128];
    ck_assert_int_eq(take(p, "a-1", 2, 2, false, l), 0);
    ck_assert_int_eq(kc_leases_format(l, 2, false, text, sizeof text), 0);
    ck_assert_str_eq(text, "cpu:0-1;cpu:2-3");
    ck_assert_int_eq(kc_leases_parse(text, 2, m, &e), 0);
    ck_assert_str_eq(units_of(m[1]), "2-3");
    release_all(NULL, m, 2);
    ck_assert_int_eq(state_of(p, 0), KC_DEVICE_LEASED); /* those held nothing */
    /* with descriptors they are the lease itself */
    ck_assert_int_eq(kc_leases_format(l, 2, true, text, sizeof text), 0);
    ck_assert_int_eq(kc_leases_parse(text, 2, m, &e), 0);
    release_all(NULL, m, 2);
    ck_assert_int_eq(state_of(p, 0), KC_DEVICE_IDLE);
    ck_assert_int_eq(kc_leases_parse(text, 2, m, &e), -EBADF);
    static const char *const bad[] = {"",
                                      "cpu",
                                      "cpu:",
                                      ":0",
                                      "*:0",
                                      "cpu:0",
                                      "cpu:0;cpu:1;cpu:2",
                                      "cpu:0;",
                                      "cpu:0;cpu:1@",
                                      "cpu:0;cpu:1@x",
                                      "cpu:0;cpu:1@1,2",
                                      "cpu:0@3:0;cpu:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(kc_leases_parse(bad[i], 2, m, &e) == -EINVAL, "'%s' was taken", bad[i]);
    ck_assert_int_eq(kc_leases_parse("cpu*:3", 1, m, &e), 0);
    ck_assert(kc_lease_shared(m[0]));
    ck_assert_str_eq(kc_lease_kind(m[0]), "cpu");
    ck_assert_int_eq(kc_leases_format(m, 1, false, text, sizeof text), 0);
    ck_assert_str_eq(text, "cpu*:3");
    ck_assert_int_eq(kc_leases_format(m, 1, false, text, 6), -ENOSPC);
    kc_lease_release(NULL, m[0]);
    release_all(NULL, l, 2); /* closes numbers that are closed already: nothing was opened since */
    kc_pool_close(p);
}
END_TEST

START_TEST(a_pool_that_only_describes_leases_nothing)
{
    struct kc_pool_config c = {.node = "n1", .root = dir, .topology = "numa:1 core:2 pu:1", .nvml = "no-such.so"};
    struct kc_pool *p = NULL;
    struct kc_lease *l[1];
    ck_assert_int_eq(kc_pool_open(&c, &p, &e), 0);
    ck_assert_int_eq(take(p, "a-1", 1, 1, false, l), -EROFS);
    ck_assert_int_eq(kc_pool_mark(p, 0, "x", &e), -EINVAL);
    kc_pool_close(p);
    c.topology = "nonsense:";
    p = NULL;
    ck_assert_int_eq(kc_pool_open(&c, &p, &e), -EINVAL);
    ck_assert_ptr_null(p);
    c.topology = "numa:1 core:2 pu:1";
    put("file", "");
    char under[128];
    snprintf(under, sizeof under, "%s/file", dir);
    c.run_dir = under;
    ck_assert_int_eq(kc_pool_open(&c, &p, &e), -ENOTDIR);
    ck_assert_ptr_nonnull(strstr(e.text, under));
}
END_TEST

/* ---- another kind of device, without touching a layer ---- */

static bool npu_broken;

static int npu_discover(const struct kc_machine *m, struct kc_devices *list, struct kc_error *error)
{
    (void)error;
    for (uint32_t i = 0; i < 2; i++) {
        struct kc_device d = {.kind = "npu", .number = i, .core = i, .peak_flops = 1e15, .valid = KC_DEVICE_PEAK};
        snprintf(d.node, sizeof d.node, "%s", m->node);
        int r = kc_devices_add(list, &d);
        if (r < 0)
            return r;
    }
    return 0;
}

static void npu_describe(const struct kc_machine *m, struct kc_device *d)
{
    (void)m;
    d->memory_free = 42;
    d->valid |= KC_DEVICE_MEMORY_FREE;
}

static bool npu_health(const struct kc_machine *m, const struct kc_device *d, char *reason, size_t room)
{
    (void)m;
    if (!npu_broken || d->number != 0)
        return true;
    snprintf(reason, room, "link down");
    return false;
}

START_TEST(a_new_kind_is_a_row_in_a_table)
{
    size_t count;
    struct kc_device_kind kinds[3];
    memcpy(kinds, kc_device_kinds(&count), 2 * sizeof *kinds);
    ck_assert_uint_eq(count, 2);
    kinds[2] = (struct kc_device_kind){"npu", npu_discover, npu_describe, npu_health, NULL};
    struct kc_pool_config c = {.run_dir = dir, .node = "n1", .root = dir, .topology = "numa:1 core:1 pu:1",
                               .nvml = "no-such.so", .kinds = kinds, .kinds_count = 3};
    struct kc_pool *p = NULL;
    struct kc_lease *l[2];
    ck_assert_int_eq(kc_pool_open(&c, &p, &e), 0);
    ck_assert_uint_eq(kc_pool_count(p), 3);
    ck_assert_uint_eq(kc_pool_device(p, 1)->memory_free, 42);
    char name[32];
    kc_device_name(kc_pool_device(p, 2), name);
    ck_assert_str_eq(name, "npu-1");
    /* an unknown NUMA node is not the same one */
    ck_assert_int_eq(kc_device_distance(kc_pool_device(p, 1), kc_pool_device(p, 2)), KC_DISTANCE_MACHINE);
    struct kc_lease_request q = {.kind = "npu", .ranks = 2, .units_per_rank = 1, .job = "a-1", .who = "test"};
    npu_broken = true;
    ck_assert_int_eq(kc_lease_take(p, &q, l, &e), -EBUSY);
    ck_assert_str_eq(e.text,
                     "asked for 2 ranks × 1 device, 2 devices are there, 1 faulty (npu-0: link down); it can start "
                     "when enough are free");
    npu_broken = false;
    ck_assert_int_eq(kc_lease_take(p, &q, l, &e), 0);
    struct kc_arena arena;
    const struct kc_device_view *view = NULL;
    ck_assert_int_eq(kc_arena_new(&arena, 65536), 0);
    ck_assert_int_eq(kc_resource_view(p, l, 2, 2, &arena, &view, &e), 0);
    ck_assert_str_eq(KC_TEXT(view, KC_AT(view, struct kc_view_device, view->devices)[1].kind), "npu");
    kc_arena_free(&arena);
    release_all(p, l, 2);
    kc_pool_close(p);
}
END_TEST

/* ---- distances and the site file ---- */

static struct kc_device site_device(const char *node, const char *site, uint32_t index)
{
    struct kc_pool_config c = {.node = node, .root = dir, .topology = "numa:2 core:2 pu:1", .nvml = "no-such.so",
                               .site = site};
    struct kc_pool *p = NULL;
    ck_assert_msg(kc_pool_open(&c, &p, &e) == 0, "%s", e.text);
    struct kc_device d = *kc_pool_device(p, index);
    kc_pool_close(p);
    return d;
}

START_TEST(distances_follow_topology_and_site_file)
{
    char site[128];
    snprintf(site, sizeof site, "%s/site.json", dir);
    put("site.json", "{\"nodes\": {\"n1\": {\"rack\": \"r1\", \"switch\": \"s1\"}, \"n2\": {\"rack\": \"r1\"},\n"
                     " \"n3\": {\"rack\": \"r2\", \"switch\": \"s1\"}, \"n4\": {\"rack\": \"r3\"}}}");
    struct kc_device d[] = {
        site_device("n1", site, 0), site_device("n1", site, 1), site_device("n1", site, 2),
        site_device("n2", site, 0), site_device("n3", site, 0), site_device("n4", site, 0),
        site_device("n5", site, 0),
    };
    enum {
        S = KC_DISTANCE_SAME,
        N = KC_DISTANCE_NUMA,
        M = KC_DISTANCE_MACHINE,
        R = KC_DISTANCE_RACK,
        F = KC_DISTANCE_FAR
    };
    static const int want[7][7] = {
        {S, N, M, R, R, F, F}, /* n1 cpu 0: n2 by rack, n3 by switch */
        {N, S, M, R, R, F, F}, {M, M, S, R, R, F, F}, {R, R, R, S, F, F, F},
        {R, R, R, F, S, F, F}, {F, F, F, F, F, S, F}, {F, F, F, F, F, F, S}, /* n5 stands nowhere: far from all */
    };
    for (int a = 0; a < 7; a++)
        for (int b = 0; b < 7; b++)
            ck_assert_msg((int)kc_device_distance(&d[a], &d[b]) == want[a][b], "%d %d: %s", a, b,
                          kc_distance_name[kc_device_distance(&d[a], &d[b])]);
    double last = 1e30;
    for (int k = 0; k < KC_DISTANCES; k++) {
        const struct kc_bandwidth *w = kc_distance_bandwidth((enum kc_distance)k);
        ck_assert(w->bytes_per_second < last);
        last = w->bytes_per_second;
    }
}
END_TEST

START_TEST(a_bad_site_file_is_one_clear_line)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"nodes\": {\n \"n1\": {\"rack\": \"r1\",}}}", "site.json: line 2: "},
        {"{\"nodes\": {\"n1\": {\"rock\": \"r1\"}}}", "site.json: nodes.n1.rock: unknown field, did you mean 'rack'"},
        {"{\"nodes\": {\"n1\": {\"rack\": 3}}}", "site.json: nodes.n1.rack: must be a name of 1 to 63 bytes"},
        {"{\"nodes\": {\"n1\": \"r1\"}}", "site.json: nodes.n1: must be an object"},
        {"{\"node\": {}}", "site.json: node: unknown field, did you mean 'nodes'"},
        {"{}", "site.json: nodes: must be an object"},
        {"[]", "site.json: must be an object"},
    };
    struct kc_pool_config c = {
        .node = "n1", .root = dir, .topology = "numa:1 pu:1", .nvml = "no-such.so", .home = dir};
    struct kc_pool *p = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("site.json", bad[i].text);
        ck_assert_int_eq(kc_pool_open(&c, &p, &e), -EINVAL);
        ck_assert_msg(strstr(e.text, bad[i].says) != NULL, "%s", e.text);
        ck_assert_ptr_null(strchr(e.text, '\n'));
    }
    char site[128];
    snprintf(site, sizeof site, "%s/none.json", dir);
    c.site = site; /* named: must be there */
    ck_assert_int_eq(kc_pool_open(&c, &p, &e), -ENOENT);
    ck_assert_ptr_nonnull(strstr(e.text, "none.json"));
    c.site = NULL; /* $KC_HOME's own may be missing */
    snprintf(site, sizeof site, "%s/site.json", dir);
    unlink(site);
    ck_assert_int_eq(kc_pool_open(&c, &p, &e), 0);
    kc_pool_close(p);
}
END_TEST

/* ---- contracts ---- */

START_TEST(the_view_of_a_job_is_the_same_bytes_wherever_it_is_built)
{
    put("sys/devices/system/cpu/cpu0/cpufreq/base_frequency", "2000000\n");
    put("sys/devices/system/cpu/cpu1/cpufreq/base_frequency", "2000000\n");
    struct kc_pool *p = open_pool("numa:2(memory=1GB) core:2 pu:2");
    struct kc_lease *l[2], *again[2];
    char text[64];
    struct kc_arena a, b;
    const struct kc_device_view *v = NULL, *w = NULL;
    ck_assert_int_eq(take(p, "a-1", 2, 4, false, l), 0);
    ck_assert_str_eq(units_of(l[0]), "0-3");
    ck_assert_int_eq(kc_arena_new(&a, 65536), 0);
    ck_assert_int_eq(kc_arena_new(&b, 65536), 0);
    ck_assert_int_eq(kc_resource_view(p, l, 2, 2, &a, &v, &e), 0);
    const struct kc_view_device *d = KC_AT(v, struct kc_view_device, v->devices);
    ck_assert_uint_eq(v->devices.count, 2);
    ck_assert_str_eq(KC_TEXT(v, d[0].kind), "cpu");
    ck_assert_str_eq(KC_TEXT(v, d[0].node), "n1");
    ck_assert_uint_eq(d[0].cores, 4);
    ck_assert_uint_eq(d[1].numa, 1);
    /* four cpus on two cores: peak of two, all of their node's memory */
    const struct kc_device *unit = kc_pool_device(p, 0);
    ck_assert_double_eq_tol(unit->ghz, 2.0, 1e-12);
    ck_assert_uint_eq(d[0].memory_bytes, unit->memory_total);
    double second = kc_pool_device(p, 1)->peak_flops; /* cpu 2, of the other core */
    ck_assert_double_eq_tol(d[0].peak_flops, unit->peak_flops + second, 1);
    const uint8_t *distance = KC_AT(v, uint8_t, v->distance);
    static const uint8_t want[] = {KC_DISTANCE_SAME, KC_DISTANCE_MACHINE, KC_DISTANCE_MACHINE, KC_DISTANCE_SAME};
    ck_assert_mem_eq(distance, want, 4);
    /* a rank, from the text in its environment */
    ck_assert_int_eq(kc_leases_format(l, 2, false, text, sizeof text), 0);
    ck_assert_int_eq(kc_leases_parse(text, 2, again, &e), 0);
    ck_assert_int_eq(kc_resource_view(p, again, 2, 2, &b, &w, &e), 0);
    ck_assert(kc_digest_equal(v->head.digest, w->head.digest));
    ck_assert_int_eq(kc_contract_check(v, v->head.bytes, KC_CONTRACT_DEVICE_VIEW, KC_DEVICE_VIEW_VERSION), 0);
    json_t *json = kc_contract_json(v, &kc_device_view_layout);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "devices")), 2);
    json_decref(json);
    release_all(NULL, again, 2);
    release_all(p, l, 2);
    kc_arena_free(&a);
    kc_arena_free(&b);
    kc_pool_close(p);
}
END_TEST

START_TEST(a_view_says_how_much_room_it_needs_and_knows_its_machine)
{
    struct kc_pool *p = open_pool("numa:1 core:64 pu:1");
    struct kc_lease *l[64];
    struct kc_arena small, fits;
    const struct kc_device_view *v = NULL;
    ck_assert_int_eq(take(p, "a-1", 64, 1, false, l), 0);
    ck_assert_int_eq(kc_arena_new(&small, 4096), 0);
    ck_assert_int_eq(kc_resource_view(p, l, 64, 64, &small, &v, &e), -ENOSPC);
    ck_assert_ptr_null(v);
    ck_assert_int_eq(kc_arena_new(&fits, small.need), 0);
    ck_assert_int_eq(kc_resource_view(p, l, 64, 64, &fits, &v, &e), 0);
    kc_arena_free(&small);
    kc_arena_free(&fits);
    release_all(p, l, 64);
    struct kc_lease *other[1];
    ck_assert_int_eq(kc_leases_parse("cpu:1;cpu:2", 2, l, &e), 0); /* ranks that are only planned share places */
    ck_assert_int_eq(kc_arena_new(&fits, 65536), 0);
    ck_assert_int_eq(kc_resource_view(p, l, 2, 5, &fits, &v, &e), 0);
    ck_assert_uint_eq(v->devices.count, 5);
    ck_assert_uint_eq(v->places, 2);
    for (uint32_t r = 0; r < 5; r++)
        ck_assert_uint_eq(KC_AT(v, uint32_t, v->place)[r], r % 2);
    ck_assert_str_eq(KC_TEXT(v, KC_AT(v, struct kc_view_device, v->devices)[4].kind), "cpu");
    kc_arena_free(&fits);
    release_all(NULL, l, 2);
    ck_assert_int_eq(kc_leases_parse("cpu:64", 1, other, &e), 0);
    ck_assert_int_eq(kc_arena_new(&small, 65536), 0);
    ck_assert_int_eq(kc_resource_view(p, other, 1, 1, &small, &v, &e), -ENODEV);
    ck_assert_str_eq(e.text, "device cpu-64 is leased but not on this machine (n1)");
    release_all(NULL, other, 1);
    kc_arena_free(&small);
    kc_pool_close(p);
}
END_TEST

static const struct kc_comm_cost *cost_row(const struct kc_comm_costs *c, int primitive, int algorithm,
                                           uint32_t ranks)
{
    const struct kc_comm_cost *row = KC_AT(c, struct kc_comm_cost, c->rows);
    for (uint32_t i = 0; i < c->rows.count; i++)
        if (row[i].primitive == primitive && row[i].algorithm == algorithm && row[i].distance == KC_DISTANCE_NUMA &&
            row[i].ranks_max >= ranks)
            return &row[i];
    ck_abort_msg("no row for %d %d %u", primitive, algorithm, ranks);
}

START_TEST(costs_are_a_stored_table_that_prefers_direct_for_few_ranks_or_bytes)
{
    struct kc_arena a, b;
    const struct kc_comm_costs *c = NULL, *d = NULL;
    ck_assert_int_eq(kc_arena_new(&a, 65536), 0);
    ck_assert_int_eq(kc_arena_new(&b, 65536), 0);
    ck_assert_int_eq(kc_resource_costs(&a, &c), 0);
    ck_assert_int_eq(kc_resource_costs(&b, &d), 0);
    ck_assert(kc_digest_equal(c->head.digest, d->head.digest));
    static const uint32_t ranks[] = {2, 4, 8, 16, 64};
    for (size_t i = 0; i < 5; i++)
        for (uint64_t bytes = 64; bytes <= UINT64_C(1) << 30; bytes *= 16) {
            double direct = kc_comm_cost_ns(cost_row(c, KC_ALL_REDUCE, KC_DIRECT, ranks[i]), ranks[i], bytes);
            double ring = kc_comm_cost_ns(cost_row(c, KC_ALL_REDUCE, KC_RING, ranks[i]), ranks[i], bytes);
            if (ranks[i] <= 4 || bytes <= 1024)
                ck_assert_msg(direct <= ring, "%u ranks, %llu bytes", ranks[i], (unsigned long long)bytes);
            else if (bytes >= 1 << 24)
                ck_assert_msg(ring < direct, "%u ranks, %llu bytes", ranks[i], (unsigned long long)bytes);
        }
    for (int primitive = 0; primitive < KC_PRIMITIVES; primitive++)
        cost_row(c, primitive, KC_DIRECT, KC_RANKS_MAX);
    kc_arena_free(&a);
    kc_arena_free(&b);
}
END_TEST

/* ---- tables of costs in files ---- */

static const char cpuinfo[] = "processor\t: 0\nmodel name\t: Maker X 9000\nflags\t\t: fpu vme avx2 sse avx512f\n\n"
                              "processor\t: 1\nmodel name\t: Maker X 9000\nflags\t\t: fpu vme avx2 sse avx512f\n";

static void machine_of(const char *text, const char *online)
{
    put("proc/cpuinfo", text);
    put("sys/devices/system/cpu/online", online);
}

static const char *costs_path(void)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/comm_costs.json", dir);
    return path;
}

static const struct kc_comm_cost measured[] = {
    {.primitive = KC_ALL_REDUCE, .algorithm = KC_DIRECT, .distance = KC_DISTANCE_MACHINE, .ranks_max = 4,
     .latency_ns = 123.456789012345, .bytes_per_second = 1.0 / 3 * 1e10},
    {.primitive = KC_ALL_REDUCE, .algorithm = KC_RING, .distance = KC_DISTANCE_MACHINE, .ranks_max = 4,
     .latency_ns = 100, .bytes_per_second = 9e9},
};

/* What the table says about an all-reduce in a group of `ranks` on one machine, by the rule of comm_costs.h. */
static const struct kc_comm_cost *row_for(const struct kc_comm_costs *c, int algorithm, uint32_t ranks)
{
    const struct kc_comm_cost *row = KC_AT(c, struct kc_comm_cost, c->rows);
    for (uint32_t i = 0; i < c->rows.count; i++)
        if (row[i].primitive == KC_ALL_REDUCE && row[i].algorithm == algorithm &&
            row[i].distance == KC_DISTANCE_MACHINE && row[i].ranks_max >= ranks)
            return &row[i];
    return NULL;
}

static const struct kc_comm_costs *choose(struct kc_arena *a)
{
    const struct kc_comm_costs *c = NULL;
    ck_assert_int_eq(kc_arena_new(a, 1 << 20), 0);
    ck_assert_int_eq(kc_costs_choose(costs_path(), dir, a, &c, &e), 0);
    return c;
}

START_TEST(a_stored_table_holds_up_to_its_largest_group_and_the_built_in_one_above)
{
    struct kc_arena a, b;
    const struct kc_comm_costs *built_in = NULL;
    machine_of(cpuinfo, "0-1\n");
    ck_assert_int_eq(kc_arena_new(&b, 1 << 20), 0);
    ck_assert_int_eq(kc_resource_costs(&b, &built_in), 0);
    ck_assert_msg(kc_costs_store(costs_path(), dir, measured, 2, &e) == 0, "%s", e.text);
    const struct kc_comm_costs *c = choose(&a);
    ck_assert_str_eq(e.text, "");
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        ck_assert_double_eq(row_for(c, KC_DIRECT, ranks)->latency_ns, measured[0].latency_ns);
        ck_assert_double_eq(row_for(c, KC_DIRECT, ranks)->bytes_per_second, measured[0].bytes_per_second);
        ck_assert_double_eq(row_for(c, KC_RING, ranks)->bytes_per_second, 9e9);
    }
    ck_assert_double_eq(row_for(c, KC_RING, 5)->latency_ns, row_for(built_in, KC_RING, 5)->latency_ns);
    ck_assert_double_eq(row_for(c, KC_RING, 64)->latency_ns, row_for(built_in, KC_RING, 64)->latency_ns);
    kc_arena_free(&a);

    /* another size of group is added; the same size is replaced */
    struct kc_comm_cost two = measured[0], four = measured[0];
    two.ranks_max = 2, two.latency_ns = 50;
    four.latency_ns = 60;
    ck_assert_int_eq(kc_costs_store(costs_path(), dir, &two, 1, &e), 0);
    ck_assert_int_eq(kc_costs_store(costs_path(), dir, &four, 1, &e), 0);
    c = choose(&a);
    ck_assert_double_eq(row_for(c, KC_DIRECT, 2)->latency_ns, 50);
    ck_assert_double_eq(row_for(c, KC_DIRECT, 3)->latency_ns, 60);
    ck_assert_double_eq(row_for(c, KC_RING, 4)->latency_ns, 100);
    kc_arena_free(&a);
    kc_arena_free(&b);
}
END_TEST

START_TEST(no_table_is_silent_and_a_foreign_one_one_line)
{
    static const struct {
        const char *cpuinfo, *online, *says;
    } others[] = {
        {"model name\t: Maker Y\nflags\t: avx2 avx512f\n", "0-1", "measured on another machine (Maker X 9000, 2 cores; this "
                                                               "is Maker Y, 2 cores)"},
        {cpuinfo, "0-3", "this is Maker X 9000, 4 cores)"},
        {"model name\t: Maker X 9000\nflags\t: fpu avx2\n", "0-1", "with other instructions"},
    };
    struct kc_arena a, b;
    const struct kc_comm_costs *built_in = NULL;
    machine_of(cpuinfo, "0-1\n");
    ck_assert_int_eq(kc_arena_new(&b, 1 << 20), 0);
    ck_assert_int_eq(kc_resource_costs(&b, &built_in), 0);
    const struct kc_comm_costs *c = choose(&a);
    ck_assert_str_eq(e.text, "");
    ck_assert(kc_digest_equal(c->head.digest, built_in->head.digest));
    kc_arena_free(&a);
    ck_assert_int_eq(kc_costs_store(costs_path(), dir, measured, 2, &e), 0);
    for (size_t i = 0; i < 3; i++) {
        machine_of(others[i].cpuinfo, others[i].online);
        c = choose(&a);
        ck_assert_msg(strstr(e.text, others[i].says), "%s", e.text);
        ck_assert_ptr_nonnull(strstr(e.text, "the built-in table of costs is used. Measure again: kc bench comm --store"));
        ck_assert_ptr_null(strchr(e.text, '\n'));
        ck_assert(kc_digest_equal(c->head.digest, built_in->head.digest));
        kc_arena_free(&a);
    }
    /* flags that say nothing about speed may come and go */
    machine_of("model name\t: Maker X 9000\nflags\t: fpu avx2 lately_mitigated avx512f\n", "0-1");
    choose(&a);
    ck_assert_str_eq(e.text, "");
    kc_arena_free(&a);
    kc_arena_free(&b);
}
END_TEST

#define ROW "\"primitive\":\"all-reduce\",\"algorithm\":\"direct\",\"distance\":\"same-machine\""
#define HEAD "{\"schema\":\"kc.comm_costs/1\",\"processor\":{\"model\":\"Maker X 9000\",\"flags\":\"avx2 avx512f\",\"cores\":2},"
static const struct {
    const char *file, *says;
} damaged[] = {
    {"", "damaged"},
    {"{\"schema\":\"kc.comm_costs/1\",\"rows\":[", "damaged: line 1"},
    {"[]", "its schema is not kc.comm_costs/1"},
    {"{\"schema\":\"kc.comm_costs/2\"}", "its schema is not kc.comm_costs/1"},
    {HEAD "\"rows\":{}}", "rows is not a list"},
    {HEAD "\"rows\":[]}", "rows is not a list"},
    {HEAD "\"rows\":[7]}", "damaged: rows[0] names no primitive"},
    {HEAD "\"rows\":[{" ROW ",\"ranks\":0,\"latency_ns\":1,\"bytes_per_second\":1}]}", "damaged: rows[0]: ranks"},
    {HEAD "\"rows\":[{" ROW ",\"ranks\":65,\"latency_ns\":1,\"bytes_per_second\":1}]}", "damaged: rows[0]: ranks"},
    {HEAD "\"rows\":[{" ROW ",\"ranks\":2,\"latency_ns\":-1,\"bytes_per_second\":1}]}", "damaged: rows[0]: ranks"},
    {HEAD "\"rows\":[{" ROW ",\"ranks\":2,\"latency_ns\":1,\"bytes_per_second\":0}]}", "damaged: rows[0]: ranks"},
    {HEAD "\"rows\":[{\"primitive\":\"barrier\",\"algorithm\":\"ring\",\"distance\":\"same-machine\",\"ranks\":2,"
          "\"latency_ns\":1,\"bytes_per_second\":1}]}", "barrier has no algorithm ring"},
};

/* A user's table: the built-in one with a line. A job's own: never another one instead. */
START_TEST(a_damaged_table_is_told_and_not_believed)
{
    struct kc_error warning;
    struct kc_arena a, b;
    const struct kc_comm_costs *built_in = NULL, *c = NULL;
    machine_of(cpuinfo, "0-1\n");
    put("comm_costs.json", damaged[_i].file);
    ck_assert_int_eq(kc_arena_new(&b, 1 << 20), 0);
    ck_assert_int_eq(kc_resource_costs(&b, &built_in), 0);
    c = choose(&a);
    ck_assert_msg(strstr(e.text, damaged[_i].says), "%s", e.text);
    ck_assert_ptr_null(strchr(e.text, '\n'));
    ck_assert(kc_digest_equal(c->head.digest, built_in->head.digest));
    kc_arena_free(&a);
    ck_assert_int_eq(kc_arena_new(&a, 1 << 20), 0);
    c = NULL;
    ck_assert_int_eq(kc_costs_load(costs_path(), &a, &c, &warning, &e), -EINVAL);
    ck_assert_ptr_null(c);
    ck_assert_ptr_nonnull(strstr(e.text, "bring it back, or remove it"));
    kc_arena_free(&a);
    kc_arena_free(&b);
}
END_TEST

START_TEST(a_table_kept_with_a_job_is_the_same_bytes_on_another_machine)
{
    struct kc_arena a, b, c;
    const struct kc_comm_costs *again = NULL, *built_in = NULL;
    struct kc_error warning = {"before"};
    char kept[160];
    machine_of(cpuinfo, "0-1\n");
    ck_assert_int_eq(kc_costs_store(costs_path(), dir, measured, 2, &e), 0);
    const struct kc_comm_costs *chosen = choose(&a);
    snprintf(kept, sizeof kept, "%s/job.json", dir);
    ck_assert_int_eq(kc_costs_keep(kept, chosen, &e), 0);
    machine_of("model name\t: Maker Y\n", "0-63");
    ck_assert_int_eq(kc_arena_new(&b, 1 << 20), 0);
    ck_assert_msg(kc_costs_load(kept, &b, &again, &warning, &e) == 0, "%s", e.text);
    ck_assert(kc_digest_equal(chosen->head.digest, again->head.digest));
    ck_assert_str_eq(warning.text, "");
    /* a job of before there were such files, or one that has lost its own: told, in one line */
    ck_assert_int_eq(kc_arena_new(&c, 1 << 20), 0);
    ck_assert_int_eq(unlink(kept), 0);
    ck_assert_int_eq(kc_costs_load(kept, &c, &built_in, &warning, &e), 0);
    ck_assert_ptr_nonnull(strstr(warning.text, "job.json is missing: the built-in table of costs is used"));
    ck_assert(!kc_digest_equal(chosen->head.digest, built_in->head.digest));
    kc_arena_free(&a);
    kc_arena_free(&b);
    kc_arena_free(&c);
}
END_TEST

START_TEST(a_table_that_cannot_be_written_is_one_line)
{
    machine_of(cpuinfo, "0-1\n");
    ck_assert_int_eq(kc_costs_store("/nowhere/comm_costs.json", dir, measured, 2, &e), -ENOENT);
    ck_assert_str_eq(e.text, "/nowhere/comm_costs.json can't be written: No such file or directory");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("resource");
    TCase *t = tcase_create("resource");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, cpu_lists_are_read_and_written);
    tcase_add_test(t, a_process_binds_itself_to_its_cores);
    tcase_add_test(t, background_threads_take_what_no_rank_has);
    tcase_add_test(t, this_machine_has_the_cpus_that_this_process_may_use);
    tcase_add_test(t, a_cpu_list_that_was_narrowed_narrows_the_pool);
    tcase_add_test(t, siblings_of_a_core_come_last_and_share_its_peak);
    tcase_add_test(t, headroom_is_that_of_the_tightest_cgroup_above);
    tcase_add_test(t, version_1_cgroups_are_read_too_and_a_path_of_the_host_is_not_followed);
    tcase_add_test(t, no_cgroup_is_no_limit_and_no_meminfo_an_error);
    tcase_add_test(t, a_cpu_quota_bounds_the_pool);
    tcase_add_test(t, no_nvml_means_no_gpus_and_no_word_about_it);
    tcase_add_test(t, gpus_are_described_leased_and_watched_through_nvml);
    tcase_add_test(t, a_gpu_tells_how_busy_it_is_and_who_uses_it);
    tcase_add_test(t, ticks_and_load_are_read_as_the_kernel_writes_them);
    tcase_add_test(t, a_double_lease_is_refused_with_numbers_and_holder);
    tcase_add_test(t, a_lock_that_cannot_be_had_gives_back_those_before_it);
    tcase_add_test(t, who_only_looks_sees_leases_and_changes_nothing);
    tcase_add_test(t, more_than_there_is_can_never_be_and_says_so);
    tcase_add_test(t, a_lease_ends_with_the_last_process_that_inherited_it);
    tcase_add_test(t, a_lease_passes_exec_only_where_it_is_let);
    tcase_add_test(t, a_marked_device_is_faulty_until_the_mark_is_gone);
    tcase_add_test(t, a_core_that_goes_offline_is_faulty_and_heals);
    tcase_add_test(t, oversubscribed_ranks_share_but_not_with_one_that_wants_its_own);
    tcase_add_test(t, who_shared_a_device_and_ended_is_not_named);
    tcase_add_test(t, shared_cores_that_nobody_uses_are_dealt_first);
    tcase_add_test(t, a_rank_gets_cores_of_one_numa_node_and_a_job_stays_together);
    tcase_add_test(t, callers_are_counted_in_the_ledger);
    tcase_add_test(t, leases_travel_as_text);
    tcase_add_test(t, a_pool_that_only_describes_leases_nothing);
    tcase_add_test(t, a_new_kind_is_a_row_in_a_table);
    tcase_add_test(t, distances_follow_topology_and_site_file);
    tcase_add_test(t, a_bad_site_file_is_one_clear_line);
    tcase_add_test(t, the_view_of_a_job_is_the_same_bytes_wherever_it_is_built);
    tcase_add_test(t, a_view_says_how_much_room_it_needs_and_knows_its_machine);
    tcase_add_test(t, costs_are_a_stored_table_that_prefers_direct_for_few_ranks_or_bytes);
    tcase_add_test(t, a_stored_table_holds_up_to_its_largest_group_and_the_built_in_one_above);
    tcase_add_test(t, no_table_is_silent_and_a_foreign_one_one_line);
    tcase_add_loop_test(t, a_damaged_table_is_told_and_not_believed, 0, sizeof damaged / sizeof *damaged);
    tcase_add_test(t, a_table_kept_with_a_job_is_the_same_bytes_on_another_machine);
    tcase_add_test(t, a_table_that_cannot_be_written_is_one_line);
    suite_add_tcase(s, t);
    return suite_run(s);
}
