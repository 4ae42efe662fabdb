"""The prompt of `debug.breakpoint`."""

from __future__ import annotations

import cmd
import pprint
import sys
import traceback


class Prompt(cmd.Cmd):
    """Shows variables of frames, the innermost first."""

    prompt = "(jdb) "
    intro = "Entering jdb:"

    def __init__(self, frames, stdin=None, stdout=None):
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None
        self.frames = frames
        self.index = 0

    @property
    def frame(self):
        return self.frames[self.index]

    def say(self, *lines):
        self.stdout.write("\n".join(lines) + "\n")

    def run(self):
        """Answers commands until one of them goes on with the program; an interrupt ends none but its own."""
        while True:
            try:
                self.cmdloop()
                return
            except KeyboardInterrupt:
                self.say("--KeyboardInterrupt--")

    def preloop(self):
        if self.frames and self.use_rawinput and sys.stdin.isatty():
            self.say(*self.frame.context(2))

    def show(self, expression, form=repr):
        frame = self.frame if self.frames else None
        names = {**frame.globals, **frame.locals} if frame else {}
        try:
            self.say(form(eval(expression, names)))
        except Exception as error:
            self.say("*** " + traceback.format_exception_only(error)[-1].strip())

    def default(self, line):
        self.show(line)

    def do_p(self, expression):
        """p expression: shows the value of an expression."""
        self.show(expression)

    def do_pp(self, expression):
        """pp expression: shows the value of an expression in several lines."""
        self.show(expression, pprint.pformat)

    def move(self, by, end):
        if not 0 <= self.index + by < len(self.frames):
            self.say(f"At {end} frame.")
        else:
            self.index += by
        self.say(*self.frame.context(2))

    def do_up(self, _):
        """u(p): goes to the calling function."""
        self.move(1, "topmost")

    def do_down(self, _):
        """d(own): goes back to the called function."""
        self.move(-1, "bottommost")

    def do_list(self, _):
        """l(ist): shows the lines around the current one."""
        if self.frames:
            self.say(*self.frame.context(5))

    def do_where(self, _):
        """w(here), bt: shows the frames, the outermost first."""
        lines = ["Traceback:"]
        for frame in reversed(self.frames):
            lines.append(f'  File "{frame.code.co_filename}", line {frame.lineno}, in {frame.code.co_name}')
            lines.append(f"    {frame.line()}")
        self.say(*lines)

    def do_continue(self, _):
        """c(ont(inue)): goes on with the program."""
        return True

    def do_quit(self, _):
        """q(uit), exit: ends the program."""
        raise SystemExit(0)

    def do_EOF(self, _):  # noqa: N802  cmd's name
        """End of the input: ends the program, which was not told to go on."""
        raise SystemExit(
            "debug.breakpoint: the input ended without a command to go on (c); pass stdin=, or use debug.print"
        )

    do_u, do_d, do_l = do_up, do_down, do_list
    do_w = do_bt = do_where
    do_c = do_cont = do_continue
    do_q = do_exit = do_quit
