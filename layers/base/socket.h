/* socket.h - UNIX stream sockets at paths of any length (sun_path holds 108 bytes; a KC_HOME may be deeper): the address
 * that is used names the directory through /proc/self/fd. All descriptors are close-on-exec. */
#ifndef KC_BASE_SOCKET_H
#define KC_BASE_SOCKET_H

/* A listening, non-blocking socket at `path`, mode 0600. The path must be free: the caller holds the lock that says that
 * a socket lying there is stale, and unlinks it. The descriptor, or -errno. */
int kc_socket_listen(const char *path);
/* A connected, blocking socket. -ENOENT nobody ever listened, -ECONNREFUSED a stale socket, else -errno. */
int kc_socket_connect(const char *path);

#endif
