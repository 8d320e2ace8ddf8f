// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// AttachXDP attaches a program to the driver of an interface, or else or if generic is set to the
// network stack, which runs it on every interface. A change of the mode is logged.
func AttachXDP(prog *ebpf.Program, i *net.Interface, generic bool, log *slog.Logger) (link.Link, error) {
	attach := func(mode link.XDPAttachFlags) (link.Link, error) {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: i.Index, Flags: mode})
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("%w: another XDP program is attached; remove it: ip link set dev %s xdp off", err, i.Name)
		}
		return l, err
	}
	if generic {
		return attach(link.XDPGenericMode)
	}
	l, refused := attach(link.XDPDriverMode)
	if refused == nil || errors.Is(refused, unix.EBUSY) {
		return l, refused
	}
	l, err := attach(link.XDPGenericMode)
	if err != nil {
		return nil, fmt.Errorf("the driver refuses XDP: %w; the network stack refuses it: %w; packets.source: bridge "+
			"needs no XDP", refused, err)
	}
	log.Warn("XDP runs in the network stack, which takes more time: the driver refuses it", "interface", i.Name, "error",
		refused)
	return l, nil
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
