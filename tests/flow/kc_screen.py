"""kc on a terminal, for flow tests."""
import fcntl, os, pty, select, signal, struct, termios

from kc_flow import BIN


class Screen:
    """kc on a terminal of 80 × 24. What it wrote, without control codes between letters, is enough to find words in."""

    def __init__(self, node, *words):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.clear()
            os.environ.update(node.environment, TERM="xterm-256color", LANG="C.UTF-8")
            os.execv(os.path.join(BIN, "kc"), ["kc", *words])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.seen = b""

    def press(self, keys):
        self.seen = b""
        os.write(self.fd, keys)

    def shows(self, text):
        if select.select([self.fd], [], [], 0.05)[0]:
            self.seen += os.read(self.fd, 65536)
        return text in self.seen

    def close(self):
        try:
            os.kill(self.pid, signal.SIGTERM)
        finally:
            os.waitpid(self.pid, 0)
            os.close(self.fd)
