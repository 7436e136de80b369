# SPDX-License-Identifier: Apache-2.0
"""`doctor`: the kernel module, device nodes, versions that do not fit. Nodes are /dev/null by other
names, the module is files; the driver is one that says what it is told to."""

import os
import unittest

import doctor
import harness

NODES = ("nvidiactl", "nvidia0", "nvidia-uvm")
MODULE = "550.54.14"


class Kernel(doctor.Case):
    def driver(self, version=MODULE):
        """A folder with a driver of this version, NVIDIA's by its looks."""
        folder = self.sick("sick_real", "driver")
        name = "libcuda.so." + version
        os.rename(os.path.join(folder, "libcuda.so.1"), os.path.join(folder, name))
        os.symlink(name, os.path.join(folder, "libcuda.so.1"))
        return folder

    def on(self, module=MODULE, nodes=NODES, version=MODULE, answer=0, modules=("nvidia_uvm",),
           more=(), user=None, **env):
        folder = self.driver(version) if version else "/nowhere"
        return self.doctor(bwrap=self.kernel(module, nodes, modules) + list(more), user=user,
                           LD_LIBRARY_PATH=folder, CG_ANSWER=str(answer), **env)

    def test_well(self):
        """The control of all others."""
        answer = self.on()
        self.assertEqual((answer.code, answer.problems, answer.notes), (0, [], []), answer.text)
        self.assertEqual(answer.machine["kernel_module"],
                         {"loaded": True, "version": MODULE, "uvm": True, "nouveau": False})
        self.assertEqual(sorted(answer.machine["nodes"], key=lambda node: node["path"]),
                         [{"path": "/dev/" + name, "device": "1:3", "usable": True}
                          for name in sorted(NODES)])
        self.assertIn("kernel module      loaded, 550.54.14, with nvidia_uvm\n", answer.text)
        self.assertIn("device nodes       /dev/nvidia-uvm /dev/nvidia0 /dev/nvidiactl\n",
                      answer.text)

    def test_version_from_sys(self):
        """Where /proc/driver/nvidia is hidden."""
        path = self.make("version", "535.261.03\n", 0o644)
        answer = self.on(module=None, more=["--dir", "/sys/module/nvidia", "--ro-bind", path,
                                            "/sys/module/nvidia/version"], version="535.261.03")
        self.assertEqual((answer.code, answer.machine["kernel_module"]["version"]),
                         (0, "535.261.03"), answer.text)

    def test_open_module(self):
        path = self.make("text", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
                         "570.86.10  Release Build  (dvs-builder@U16-I3-B17-3-3)\n", 0o644)
        answer = self.on(module=None, version="570.86.10",
                         more=["--ro-bind", path, "/proc/driver/nvidia/version"])
        self.assertEqual(answer.machine["kernel_module"]["version"], "570.86.10")

    def test_mismatch(self):
        answer = self.on(version="535.261.03", answer=803)
        self.assertEqual(answer.code, 1)
        self.assertEqual(len(answer.problems), 2, answer.text)
        self.assertIn("driver/library version mismatch: the kernel module is 550.54.14, libcuda "
                      "535.261.03", answer.problems[0])
        self.assertIn("cuInit fails with 803 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
                      answer.problems[1])

    def test_forward_compatible(self):
        """It works: no problem."""
        answer = self.on(version="570.86.10")
        self.assertEqual((answer.code, answer.problems), (0, []))
        self.assertEqual(answer.notes, ["the kernel module is 550.54.14, libcuda 570.86.10: they "
                                        "work together (forward compatibility)"])

    def test_real_driver_and_a_newer_module(self):
        self.need_real_driver()
        answer = self.doctor(world="real", bwrap=self.kernel("999.1.2"))
        self.assertEqual(answer.code, 1)
        self.assertIn("driver/library version mismatch: the kernel module is 999.1.2, libcuda " +
                      answer.library("libcuda.so.1")["version"], "\n".join(answer.problems))
        self.assertEqual(answer.nodes, [])

    def test_missing_nodes(self):
        for nodes, *meaning in (
                ((), "there is no /dev/nvidiactl", "nvidia-modprobe -c 0 -u"),
                (("nvidia0",), "there is no /dev/nvidiactl"),
                (("nvidiactl", "nvidia-uvm"), "there is no /dev/nvidia0 or other GPU"),
                (("nvidiactl", "nvidia7"), "there is no /dev/nvidia-uvm", "nvidia-modprobe -u")):
            answer = self.on(nodes=nodes, answer=100)
            self.assertEqual(answer.code, 1)
            self.assertIn("the kernel module is loaded, but " + meaning[0], answer.problems[0])
            self.assertIn(meaning[-1], answer.problems[0])

    def test_a_container_without_gpus(self):
        """On a machine with some: no driver, no node, no problem."""
        answer = self.on(nodes=(), version=None)
        self.assertEqual((answer.code, answer.problems), (0, []), answer.text)

    def test_no_library(self):
        self.problem(self.on(version=None), "there is a GPU, but no libcuda.so.1")

    def test_lost(self):
        """Everything is there, and cuInit says no."""
        self.problem(self.on(answer=100), "cuInit finds no GPU, though there are its kernel module")
        # The program's own choice is another matter.
        answer = self.on(answer=0, CUDA_VISIBLE_DEVICES="")
        self.assertEqual(answer.code, 0, answer.text)

    def test_left_behind(self):
        """A node without its module: not opened, for the kernel might load it."""
        answer = self.on(module=None, nodes=("nvidiactl",), modules=())
        self.problem(answer, "/dev/nvidiactl is there, but the kernel module is not loaded",
                     "remove it")
        self.assertEqual((answer.cuinit["outcome"], answer.cuinit["reason"]), (
            "not tried", "to open /dev/nvidiactl may load the kernel module"))

    def test_not_known(self):
        """A kernel that shows no modules (gVisor): the driver is asked."""
        bwrap = ["--tmpfs", "/proc/driver", "--tmpfs", "/sys/module"]
        for node in NODES:
            bwrap += ["--dev-bind", "/dev/null", "/dev/" + node]
        answer = self.doctor(bwrap=bwrap, LD_LIBRARY_PATH=self.driver(), CG_ANSWER="0")
        self.assertEqual((answer.code, answer.cuinit["code"]), (0, 0), answer.text)
        self.assertIsNone(answer.machine["kernel_module"]["loaded"])
        self.assertIn("kernel module      not known\n", answer.text)

    def test_no_device(self):
        answer = self.on(nodes=NODES + ("nvidia1=",))
        self.problem(answer, "/dev/nvidia1 is no device; remove it")
        self.assertIn("/dev/nvidia1 (no device)", answer.text)

    @unittest.skipUnless(os.geteuid() == 0, "needs a node that this user may not open")
    def test_not_for_this_user(self):
        closed = self.path("closed")
        os.mknod(closed, 0o020600, os.makedev(1, 3))
        more = ["--dev-bind", closed, "/dev/nvidia1", "--dir", "/dev/nvidia-caps", "--dev-bind",
                closed, "/dev/nvidia-caps/nvidia-cap1"]
        answer = self.on(more=more, user="65534", answer=304)
        self.assertEqual(len(answer.problems), 2, answer.text)
        self.assertIn("this user may not open /dev/nvidia1 (its group, or a cgroup)",
                      answer.problems)
        # With others that work it is no problem.
        answer = self.on(more=more, user="65534")
        self.assertEqual((answer.code, answer.notes),
                         (0, ["this user may not open /dev/nvidia1 (its group, or a cgroup)"]))
        self.assertIn("/dev/nvidia1 (not for this user)", answer.text)
        # Root may; MIG's capabilities are never everybody's.
        answer = self.on(more=more)
        self.assertEqual((answer.problems, answer.notes), ([], []))
        self.assertIn("/dev/nvidia-caps/nvidia-cap1",
                      [node["path"] for node in answer.machine["nodes"]])

    def test_nouveau(self):
        answer = self.on(module=None, nodes=(), modules=("nouveau",), answer=100)
        self.assertEqual((answer.code, answer.problems), (0, []))
        self.assertEqual(answer.notes, ["nouveau drives the card: NVIDIA's kernel module cannot"])

    def test_wsl(self):
        answer = self.on(module=None, nodes=(), modules=(),
                         more=["--dev-bind", "/dev/null", "/dev/dxg"])
        self.assertEqual((answer.code, answer.machine["wsl"]), (0, True))
        self.assertIn("this is WSL (/dev/dxg): cudaguard is untested there", answer.notes)


if __name__ == "__main__":
    harness.main()
