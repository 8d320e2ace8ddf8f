// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

// Package kerneltest has helpers for testing data paths in the kernel.
package kerneltest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// NeedBPF skips a test where eBPF programs cannot be loaded.
func NeedBPF(t testing.TB) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUHash, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("eBPF programs cannot be loaded here (uid %d): %v", os.Getuid(), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = m.Close()
}

// OnProcessor binds the goroutine to one processor until the test ends.
func OnProcessor(t testing.TB, n int) {
	t.Helper()
	runtime.LockOSThread() // the thread ends with the goroutine
	var set unix.CPUSet
	set.Set(n)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Skipf("processor %d: %v", n, err)
	}
}

// Isolated runs a test or benchmark in a process and a network namespace of its own, in which veth
// connects net and host, and returns true there.
func Isolated(t testing.TB) bool {
	t.Helper()
	NeedBPF(t)
	if !testkit.Isolated(t) {
		return false
	}
	for _, name := range []string{"all", "default"} { // a kernel without IPv6 has no such file
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0o600)
	}
	Veth(t)
	return true
}

// Veth creates a veth pair, net and host, in this network namespace.
func Veth(t testing.TB) {
	t.Helper()
	IP(t, "link add name net type veth peer name host")
	IP(t, "link set up dev net")
	IP(t, "link set up dev host")
}

// IP runs the command ip with the words of a line as arguments, and returns its output.
func IP(t testing.TB, line string) string {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v\n%s", line, err, out)
	}
	return string(out)
}

// Hooks returns whether an interface of this network namespace has a program at XDP, and how many
// it has at TCX in each direction.
func Hooks(t testing.TB, name string) (xdp bool, ingress, egress int) {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	count := func(at ebpf.AttachType) int {
		r, err := link.QueryPrograms(link.QueryOptions{Target: i.Index, Attach: at})
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Programs)
	}
	return strings.Contains(IP(t, "link show dev "+name), "prog/xdp"), count(ebpf.AttachTCXIngress),
		count(ebpf.AttachTCXEgress)
}

// Recreate deletes the interfaces of Veth while data paths are attached to host, and creates them
// again. It returns when the programs that were attached to the old host are attached to the new
// one.
func Recreate(t testing.TB) {
	t.Helper()
	before := attached(t)
	if before == (programs{}) {
		t.Fatal("no program is attached")
	}
	IP(t, "link del dev net")
	Veth(t)
	testkit.Until(t, "the programs are attached to the new interface", func() bool { return attached(t) == before })
}

// programs are the eBPF programs on the interface host.
type programs struct {
	xdp                     bool
	ingress, egress, clsact int
}

func attached(t testing.TB) (p programs) {
	t.Helper()
	p.xdp, p.ingress, p.egress = Hooks(t, "host")
	if _, err := exec.LookPath("tc"); err != nil {
		return p
	}
	for _, direction := range []string{"ingress", "egress"} {
		out, _ := exec.Command("tc", "filter", "show", "dev", "host", direction).Output() // fails without clsact
		p.clsact += strings.Count(string(out), "netsketch-")
	}
	return p
}

// Socket returns a socket for frames of an interface, which does not block.
func Socket(t testing.TB, name string) int {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // all protocols, in network order
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		err = unix.Bind(s, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(s) })
	return s
}

// Stack returns a socket that receives the IPv4 packets of a protocol after the programs of XDP and
// TC have passed them to the network stack. Interface host gets the address, which the packets must
// have as destination. Frames must have a broadcast address, so that the stack accepts them.
func Stack(t testing.TB, address string, protocol int) int {
	t.Helper()
	if out, err := exec.Command("ip", "addr", "add", address+"/24", "dev", "host").CombinedOutput(); err != nil {
		t.Fatalf("ip addr add %s: %v\n%s", address, err, out)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(s) })
	return s
}

// BPFFS returns a directory in a BPF file system.
func BPFFS(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Skipf("no BPF file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	return dir
}

// NoReport fails the test unless an epoch lacks a report because the interface was deleted in that
// epoch.
func NoReport(t testing.TB, p agent.DataPath, epoch uint64) {
	t.Helper()
	p.Advance(epoch + 1)
	want := "deleted in epoch " + strconv.FormatUint(epoch, 10)
	if _, err := p.Seal(epoch); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the report of epoch %d: %v; expected an error, as packets passed without being counted", epoch, err)
	}
}
