# Stops in front of an instruction when it is about to touch the bytes that a finding is about. Above this, Brownout has set
# MODULE and OFFSET (the instruction, in the terms of its ELF file), BYTES (file and offset, or None), POOLS (the files of persistent
# memory), BEFORE (how often the same happened before), TOLD (the event in words) and STDIN (a file, or None).
import os
import re
import shlex
import struct

import gdb

os.remove(os.path.abspath(__file__))

for setting in ("pagination off", "confirm off", "breakpoint pending on", "debuginfod enabled off", "disable-randomization on"):
    try:
        gdb.execute("set " + setting, to_string=True)
    except gdb.error:
        pass  # An older gdb does not know it.


def same_file(a, b):
    try:
        return os.path.samefile(a, b)
    except OSError:
        return a == b


def mappings():
    """Start, end, offset in the file, and file of each mapping."""
    pid = gdb.selected_inferior().pid
    if not pid:
        return
    try:
        with open("/proc/%d/maps" % pid, errors="surrogateescape") as lines:
            for line in lines:
                words = line.rstrip("\n").split(None, 5)
                if len(words) < 6 or not words[5].startswith("/"):
                    continue
                start, end = (int(word, 16) for word in words[0].split("-"))
                yield start, end, int(words[2], 16), words[5]
    except OSError:
        return


def load_bias():
    """What is to be added to addresses of the ELF file; None if it is not loaded."""
    try:
        with open(MODULE, "rb") as file:
            head = file.read(64)
    except OSError:
        return None
    is_fixed = struct.unpack_from("<H", head, 16)[0] == 2
    for start, _, offset, path in mappings():
        if offset == 0 and same_file(path, MODULE):
            return 0 if is_fixed else start
    return None


REGISTER = re.compile(r"(-?0x[0-9a-f]+|-?[0-9]+)?\((%\w+)?(?:,(%\w+),?([1248])?)?\)")


def address_of(operand, following):
    displacement, base, index, scale = operand

    def value(register):
        if register in ("%rip", "%eip"):
            return following
        return int(gdb.parse_and_eval("$" + register[1:]).cast(gdb.lookup_type("unsigned long")))

    address = int(displacement, 16) if displacement else 0
    if base:
        address += value(base)
    if index and index not in ("%riz", "%eiz"):
        address += value(index) * int(scale or 1)
    return address & (1 << 64) - 1


def touched():
    """Where in the pool the instruction is about to write, of those that it names; of a write-back, the line."""
    frame = gdb.newest_frame()
    instruction = frame.architecture().disassemble(frame.pc())[0]
    following = frame.pc() + instruction["length"]
    operands = REGISTER.findall(instruction["asm"].split("#")[0])
    step = 64 if instruction["asm"].startswith(("clflush", "clwb")) else 1
    found = []
    for operand in operands:
        address = address_of(operand, following)
        for start, end, offset, path in mappings():
            if start <= address < end:
                found.append((path, address - start + offset, step))
    return found


class Event(gdb.Breakpoint):
    def __init__(self, address):
        super().__init__("*%#x" % address, type=gdb.BP_BREAKPOINT, internal=True)
        self.silent = True
        self.left = BEFORE

    def stop(self):
        if BYTES is not None:
            file, offset = BYTES
            if not any(at // step == offset // step and same_file(path, file) for path, at, step in touched()):
                return False
        elif not any(same_file(path, pool) for _, _, _, path in mappings() for pool in POOLS):
            return False
        if self.left > 0:
            self.left -= 1
            return False
        return True


event = None


def set_event(*_):
    """As soon as the module is there."""
    global event
    if event is None:
        bias = load_bias()
        if bias is not None:
            event = Event(bias + OFFSET)


def stopped(what):
    if event is not None and isinstance(what, gdb.BreakpointEvent) and event in what.breakpoints:
        print("brownout: stopped where " + TOLD)
        event.enabled = False


def exited(_):
    if event is None or event.enabled:
        print("brownout: the program has ended and did not come there: it went another way than in the recording")


if STDIN:
    # Behind "starti", it would take the place of the program's arguments; and what gdb knows of them it tells only so.
    shown = gdb.execute("show args", to_string=True)
    arguments = shown[shown.index('"') + 1 : shown.rindex('"')]
    gdb.execute("set args " + arguments + " < " + shlex.quote(STDIN))
gdb.execute("starti", to_string=True)
set_event()
if event is None:
    gdb.events.new_objfile.connect(set_event)
gdb.events.stop.connect(stopped)
gdb.events.exited.connect(exited)
gdb.execute("continue")
