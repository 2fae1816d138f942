/* data_files.c */
#include "data_files.h"

#include "base/file.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

void data_files_begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/kc-test-data-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

void data_files_end(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", folder, NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

const char *data_path(const char *name)
{
    static char path[64][256];
    static int turn;
    turn = (turn + 1) % 64;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

void data_put(const char *path, const void *bytes, size_t count)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(kc_write_all(fd, bytes, count), 0);
    close(fd);
}

void data_put_elements(const char *path, int32_t magic, int32_t version, uint32_t each, const int32_t *values,
                       size_t count)
{
    int32_t header[256] = {magic, version, (int32_t)count};
    size_t bytes = sizeof header + count * each;
    unsigned char *data = malloc(bytes);
    memcpy(data, header, sizeof header);
    for (size_t i = 0; i < count; i++)
        memcpy(data + sizeof header + i * each, &values[i], each);
    data_put(path, data, bytes);
    free(data);
}

void data_put_counting(const char *path, uint32_t first, size_t count)
{
    int32_t *values = calloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (int32_t)((first + i) % 65536);
    data_put_elements(path, 20240520, 1, 2, values, count);
    free(values);
}

void data_put_mask(const char *path, const char *bits, size_t count)
{
    int32_t *values = calloc(count, sizeof *values);
    for (size_t i = 0, n = strlen(bits); i < count; i++)
        values[i] = bits[i % n] - '0';
    data_put_elements(path, 20261130, 1, 1, values, count);
    free(values);
}

int32_t *data_get_elements(const char *path, uint32_t each, size_t *count)
{
    char *bytes;
    size_t size;
    ck_assert_msg(kc_file_read(path, (size_t)1 << 28, &bytes, &size) == 0, "%s", path);
    *count = (size - 1024) / each;
    int32_t *values = calloc(*count + 1, sizeof *values);
    for (size_t i = 0; i < *count; i++)
        memcpy(&values[i], bytes + 1024 + i * each, each);
    free(bytes);
    return values;
}
