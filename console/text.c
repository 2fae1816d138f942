/* text.c - UTF-8 (RFC 3629) in, safe text out. No locale, no allocation. */
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <wchar.h>

size_t text_character(const char *data, size_t bytes, unsigned *code)
{
    static const unsigned least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)data;
    if (bytes == 0)
        return 0;
    size_t n = p[0] < 0x80             ? 1
               : (p[0] & 0xe0) == 0xc0 ? 2
               : (p[0] & 0xf0) == 0xe0 ? 3
               : (p[0] & 0xf8) == 0xf0 ? 4
                                       : 0;
    if (n == 0 || n > bytes)
        return 0;
    unsigned c = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0; /* overlong, too large, half of a surrogate pair */
    *code = c;
    return n;
}

static bool harmless(unsigned c)
{
    if (c < 0x20 || (c >= 0x7f && c < 0xa0))
        return false;
    /* direction and line marks, byte order mark, not-characters: they change how a line looks without being seen */
    return !((c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
             c == 0xfeff || (c >= 0xfff9 && c <= 0xffff) || (c >= 0xe0000 && c <= 0xe0fff));
}

/* The safe form of the character at data[0]: into `piece` (at most 17 bytes); returns its length, *used bytes of
 * data. */
static size_t safe_piece(const char *data, size_t bytes, int keep, char piece[20], size_t *used)
{
    static const char hex[] = "0123456789abcdef";
    unsigned code = 0;
    size_t n = text_character(data, bytes, &code), at = 0;
    *used = n ? n : 1;
    if (n && (harmless(code) || ((keep & TEXT_KEEP_LINES) && (code == '\n' || code == '\t')))) {
        memcpy(piece, data, n);
        return n;
    }
    for (size_t i = 0; i < *used; i++) {
        unsigned char b = (unsigned char)data[i];
        piece[at++] = '\\';
        piece[at++] = 'x';
        piece[at++] = hex[b >> 4];
        piece[at++] = hex[b & 15];
    }
    return at;
}

size_t text_clean(const char *data, size_t bytes, int keep, char *out, size_t room)
{
    size_t length = 0;
    char piece[20];
    for (size_t at = 0, used; at < bytes; at += used) {
        size_t n = safe_piece(data + at, bytes - at, keep, piece, &used);
        if (length + n + 1 > room)
            break;
        memcpy(out + length, piece, n);
        length += n;
    }
    if (room)
        out[length] = 0;
    return length;
}

void text_print(FILE *out, const char *data, size_t bytes)
{
    char piece[20];
    for (size_t at = 0, used; at < bytes; at += used) {
        size_t n = safe_piece(data + at, bytes - at, TEXT_KEEP_LINES, piece, &used);
        fwrite(piece, 1, n, out);
    }
}

/* Ranges of East Asian wide and of combining characters (Unicode 15, condensed to what terminals agree on):
 * wcwidth() would say -1 for all of them in LANG=C, and differ between machines. */
int text_columns(unsigned c)
{
    static const unsigned combining[][2] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},
                                            {0x64b, 0x65f},   {0x6d6, 0x6dc},   {0x900, 0x902},   {0x93a, 0x93a},
                                            {0x941, 0x948},   {0xe31, 0xe31},   {0xe34, 0xe3a},   {0x1ab0, 0x1aff},
                                            {0x1dc0, 0x1dff}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};
    static const unsigned wide[][2] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},  {0xa960, 0xa97f},
                                       {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},  {0xff00, 0xff60},
                                       {0xffe0, 0xffe6},   {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff},
                                       {0x20000, 0x3fffd}};
    for (size_t i = 0; i < sizeof combining / sizeof combining[0]; i++)
        if (c >= combining[i][0] && c <= combining[i][1])
            return 0;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        if (c >= wide[i][0] && c <= wide[i][1])
            return 2;
    return 1;
}

int text_width(const char *text)
{
    int width = 0;
    size_t left = strlen(text);
    while (left) {
        unsigned code = '?';
        size_t n = text_character(text, left, &code);
        width += text_columns(code);
        text += n ? n : 1;
        left -= n ? n : 1;
    }
    return width;
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

const char *text_number(double v, const char *format, char *out, size_t room)
{
    if (isnan(v))
        snprintf(out, room, "-");
    else
        snprintf(out, room, format, v);
    return out;
}

const char *text_bytes(double v, char *out, size_t room)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int u = 0;
    if (isnan(v))
        return text_number(v, "", out, room);
    for (; v >= 1024 && u < 5; u++)
        v /= 1024;
    snprintf(out, room, u == 0 || v >= 100 ? "%.0f %s" : "%.1f %s", v, unit[u]);
    return out;
}

const char *text_brief(double v, char *out, size_t room)
{
    if (isnan(v) || v < 0) {
        snprintf(out, room, "-");
        return out;
    }
    const double s = v < 1e9 ? floor(v) : 1e9, m = floor(s / 60), h = floor(m / 60), d = floor(h / 24);
    if (s < 1)
        snprintf(out, room, "<1s");
    else if (s < 60)
        snprintf(out, room, "%.0fs", s);
    else if (m < 10)
        snprintf(out, room, "%.0fm%.0fs", m, s - m * 60);
    else if (m < 60)
        snprintf(out, room, "%.0fm", m);
    else if (h < 10)
        snprintf(out, room, "%.0fh%.0fm", h, m - h * 60);
    else if (h < 48)
        snprintf(out, room, "%.0fh", h);
    else if (d < 10)
        snprintf(out, room, "%.0fd%.0fh", d, h - d * 24);
    else
        snprintf(out, room, "%.0fd", d);
    return out;
}

const char *text_parameters(uint64_t all, uint64_t trained, char *out, size_t room)
{
    const int n = snprintf(out, room, "%" PRIu64 " parameters", all);
    if (trained != all && n > 0 && (size_t)n < room)
        snprintf(out + n, room - (size_t)n, ": %" PRIu64 " trained, %" PRIu64 " frozen", trained, all - trained);
    return out;
}

const char *text_seconds(double v, char *out, size_t room)
{
    if (isnan(v))
        return text_number(v, "", out, room);
    if (v < 1e-3)
        snprintf(out, room, "%.0f us", v * 1e6);
    else if (v < 1)
        snprintf(out, room, "%.0f ms", v * 1e3);
    else if (v < 60)
        snprintf(out, room, "%.1f s", v);
    else if (v < 3600)
        snprintf(out, room, "%.0f min %02.0f s", floor(v / 60), floor(fmod(v, 60)));
    else if (v < 86400)
        snprintf(out, room, "%.0f h %02.0f min", floor(v / 3600), floor(fmod(v, 3600) / 60));
    else
        snprintf(out, room, "%.0f d %02.0f h", floor(v / 86400), floor(fmod(v, 86400) / 3600));
    return out;
}

const char *text_rate(double v, char *out, size_t room)
{
    static const char *const unit[] = {"", "k", "M", "G", "T"};
    int u = 0;
    if (isnan(v))
        return text_number(v, "", out, room);
    for (; v >= 1000 && u < 4; u++)
        v /= 1000;
    snprintf(out, room, u == 0 || v >= 100 ? "%.0f%s" : v >= 10 ? "%.1f%s" : "%.2f%s", v, unit[u]);
    return out;
}
