// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// AttachXDP attaches a program to the driver of an interface, or else or if generic is set to the
// network stack.
func AttachXDP(prog *ebpf.Program, i *net.Interface, generic bool) (link.Link, error) {
	modes := []link.XDPAttachFlags{link.XDPDriverMode, link.XDPGenericMode}
	if generic {
		modes = modes[1:]
	}
	var errs []error
	for _, mode := range modes {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: i.Index, Flags: mode})
		if err == nil {
			return l, nil
		}
		if errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("%w: another XDP program is attached; remove it: ip link set dev %s xdp off", err, i.Name)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// Pin pins a link in a directory, which it creates.
func Pin(l link.Link, dir, name string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return l.Pin(filepath.Join(dir, name))
}

// ErrGone is the error of a pinned link whose interface does not exist any more.
var ErrGone = errors.New("the interface of a pinned program is gone")

// Adopt opens a pinned link to an interface. One to another interface is removed: ErrGone.
func Adopt(dir, name string, i *net.Interface) (link.Link, error) {
	file := filepath.Join(dir, name)
	l, err := link.LoadPinnedLink(file, nil)
	if err != nil {
		return nil, err
	}
	at := uint32(0)
	if info, err := l.Info(); err == nil {
		if x := info.XDP(); x != nil {
			at = x.Ifindex
		} else if x := info.TCX(); x != nil {
			at = x.Ifindex
		}
	}
	if at != uint32(i.Index) {
		return nil, errors.Join(ErrGone, l.Close(), os.Remove(file))
	}
	return l, nil
}
