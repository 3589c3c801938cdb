"""How far the cost model is from measurements: the tables that scripts/calibrate/kernel_times.py prints."""

import collections
import pathlib
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]

Row = collections.namedtuple(
    "Row", "device constants group source shape held_out seconds calibrated roofline")
FEW = 30  # rows under which the sum of a group says little
FEW_OF_A_CLASS = 8  # and the median of a class
K_CLASSES = (64, 128, 512)  # the longest sums of a class of products


class Program:
    """The C++ model behind a pipe."""

    def __init__(self, path):
        self.process = subprocess.Popen(
            [path, str(ROOT / "configs/devices.json"), str(ROOT / "configs/calibration")], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"kernel_times.py: predict_samples ended on '{line}'")
        return answer

    def lines(self, command):
        line = self.ask(command)
        while line.strip():
            yield line.split()
            line = self.process.stdout.readline()

    def rows(self):
        return [Row(*words[:5], words[5] == "1", *map(float, words[6:])) for words in self.lines("rows")]

    def predict(self, device, constants, values):
        return np.array(self.ask(f"try {device} {constants} " + " ".join(f"{x:.9g}" for x in values))
                        .split(), float)


def table(rows):
    """Lines of errors on held-out rows, per device and kind of kernel, then over all devices."""
    groups = collections.defaultdict(list)
    for row in rows:
        if row.held_out:
            groups[row.device, row.group].append(row)
            groups["~", row.group].append(row)  # sorts behind every name
    yield (f"{'device':16} {'kernels':37} {'rows':>4}   {'calibrated: median':>18} {'mean':>6}   "
           f"{'roofline: median':>16} {'mean':>6}")
    for (device, group), members in sorted(groups.items()):
        errors = [[100 * abs(getattr(row, key) / row.seconds - 1) for row in members]
                  for key in ("calibrated", "roofline")]
        cells = [(np.median(error), np.mean(error)) for error in errors]
        yield (f"{device.replace('~', 'all'):16} {group:37} {len(members):4}   "
               f"{cells[0][0]:16.1f} % {cells[0][1]:4.0f} %   "
               f"{cells[1][0]:14.1f} % {cells[1][1]:4.0f} %")


def sums(rows):
    """Lines of predicted over measured seconds, summed over the rows of a device and kind of kernel:
    rows that the fit has seen, and held-out ones. Groups of fewer than FEW rows are left out.

    The scatter is what the held-out sum of a group would be off by, were its rows drawn from those of
    the fit: rows are off each by itself, so that few long ones do not cancel out. Two such deviations
    are what noise alone exceeds once in twenty."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row.device, row.group].append(row)
    yield f"{'device':16} {'kernels':37} {'rows':>5} {'of the fit':>11} {'held out':>9} {'scatter':>8}"
    outside, beyond = [], 0
    for (device, group), members in sorted(groups.items()):
        if len(members) < FEW:
            continue
        cells = []
        for held_out in (False, True):
            mine = [row for row in members if row.held_out == held_out]
            cells.append(sum(row.calibrated for row in mine) / sum(row.seconds for row in mine))
        deviation = scatter(members)
        beyond += abs(cells[1] - 1) > 2 * deviation
        outside.append([not 0.95 <= cell <= 1.05 for cell in cells])
        yield f"{device:16} {group:37} {len(members):5} {cells[0]:11.2f} {cells[1]:9.2f} {deviation:8.2f}"
    yield (f"outside 0.95 to 1.05: {sum(fit for fit, _ in outside)} of {len(outside)} on the fit, "
           f"{sum(held for _, held in outside)} held out; "
           f"off by more than twice their scatter: {beyond} held out")


def product_class(row):
    """Which class of matrix products a row is of: whether they come in batches, and how many terms
    their sums have. None for other kernels."""
    if not row.constants.startswith("matmul"):
        return None
    batch, _, _, k = map(int, row.shape.split(",")[1:])
    longest = next((f"k <= {most}" for most in K_CLASSES if k <= most), f"k > {K_CLASSES[-1]}")
    return f"{'batched' if batch > 1 else 'single'}, {longest}"


def classes(rows):
    """Lines of the median of predicted over measured seconds, of each device and class of matrix
    products of FEW_OF_A_CLASS rows or more: rows that the fit has seen, and held-out ones."""
    groups = collections.defaultdict(lambda: ([], []))
    for row in rows:
        if kind := product_class(row):
            groups[row.device, row.constants, kind][row.held_out].append(row.calibrated / row.seconds)
    yield f"{'device':16} {'kernels':12} {'class':18} {'rows':>4} {'of the fit':>11} {'held out':>9}"
    for (device, constants, kind), (fitted, held_out) in sorted(groups.items()):
        count = len(fitted) + len(held_out)
        if count >= FEW_OF_A_CLASS:
            kept = f"{np.median(held_out):9.2f}" if held_out else f"{'-':>9}"
            yield f"{device:16} {constants:12} {kind:18} {count:4} {np.median(fitted):11.2f} {kept}"


def scatter(members):
    """The deviation of the held-out sum over the measured one, from the errors of the other rows."""
    fitted = [row for row in members if not row.held_out]
    seconds = np.array([row.seconds for row in fitted])
    errors = np.array([row.calibrated for row in fitted]) / seconds - 1
    held_out = np.array([row.seconds for row in members if row.held_out])
    of_a_row = np.sqrt(np.average(errors ** 2, weights=seconds))
    return of_a_row * np.sqrt((held_out ** 2).sum()) / held_out.sum()


def layers(program):
    """Lines of profiled layers, class by class."""
    classes = collections.defaultdict(lambda: [0, 0, 0])
    for device, kind, direction, count, *seconds in program.lines("layers"):
        cell = classes[device, f"{kind} {direction}"]
        for i, value in enumerate((count, *seconds)):
            cell[i] += float(value)
    yield f"{'device':16} {'layers':24} {'number':>6} {'measured ms':>12} {'ours ms':>9} {'error':>7}"
    for (device, kind), (count, measured, ours) in sorted(classes.items()):
        yield (f"{device:16} {kind:24} {count:6.0f} {1e3 * measured:12.1f} {1e3 * ours:9.1f} "
               f"{100 * (ours / measured - 1):+5.0f} %")


def ratios(rows):
    """Lines of one card's time over another's on the same shapes, measured and ours."""
    yield (f"{'kernels':16} {'ratio of times':34} {'shapes':>6} {'measured':>9} {'calibrated':>11} "
           f"{'roofline':>9}")
    for slow, fast in (("GTX-1080-Ti", "V100-SXM2-16GB"), ("P100-PCIE-16GB", "GTX-1080-Ti")):
        for kind in ("matmul", "convolution"):
            # The sheets list the same shapes, though not in the same order for every card.
            times = collections.defaultdict(dict)
            for row in rows:
                if (row.source == "deepbench" and row.constants.startswith(kind)
                        and "half" not in row.constants):
                    times[row.shape].setdefault(row.device, row)
            pairs = [(seen[slow], seen[fast]) for seen in times.values() if slow in seen and fast in seen]
            cells = [np.median([getattr(a, key) / getattr(b, key) for a, b in pairs])
                     for key in ("seconds", "calibrated", "roofline")]
            yield (f"{kind:16} {slow + ' / ' + fast:34} {len(pairs):6} {cells[0]:9.2f} {cells[1]:11.2f} "
                   f"{cells[2]:9.2f}")
