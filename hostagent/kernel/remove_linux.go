// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Strip attaches and pins programs that strip arriving packets, and leaves them to the agent that
// starts later. If the first program is attached to the interface already, nothing changes.
func Strip(c Config, hooks ...Hook) error {
	if c.Pin == "" {
		return errors.New("nothing is pinned: programs would end with this command; set packets.pin")
	}
	i, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", c.Interface, err)
	}
	if l, err := link.LoadPinnedLink(filepath.Join(c.Pin, hooks[0].Name), nil); err == nil {
		at, _ := placeOf(l)
		_ = l.Close()
		if at == i.Index {
			return nil
		}
	}
	a := NewAttachment(c, nil)
	return errors.Join(a.Set(nil, hooks...), a.Close())
}

// Lock claims the directory of pins, which it creates, for this process. The error is a HeldError
// while another process has it.
func Lock(dir string) (release func(), err error) {
	if err := CheckPin(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = &HeldError{Dir: dir, PID: holder(f)}
		}
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// holder returns the process that has locked a file; 0 if it is not known.
func holder(f *os.File) int {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	of, ok := info.Sys().(*unix.Stat_t)
	if !ok {
		var s unix.Stat_t
		if unix.Fstat(int(f.Fd()), &s) != nil {
			return 0
		}
		of = &s
	}
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(of.Dev), unix.Minor(of.Dev), of.Ino)
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 1234 00:1c:5678 0 EOF
		if f := strings.Fields(lines.Text()); len(f) > 5 && f[1] == "FLOCK" && f[5] == want {
			pid, _ := strconv.Atoi(f[4])
			return pid
		}
	}
	return 0
}

// Remove removes what agents with these roles left in the kernel: pins in directories, and programs
// at interfaces. It removes programs for outgoing packets at once, and programs that strip arriving
// packets after LeaseTime. It succeeds if there is nothing to remove. No agent may run. removed
// lists the removed programs and pins.
func Remove(ctx context.Context, dirs []string, interfaces []net.Interface, roles []string) (removed []string,
	err error) {
	strips := false
	take := func(egress bool) error {
		var errs []error
		for _, p := range pinsIn(dirs, roles) {
			l, err := link.LoadPinnedLink(p, nil)
			if err != nil {
				continue // a map, removed with the directory
			}
			index, at := placeOf(l)
			if (at == ebpf.AttachTCXEgress) == egress {
				removed = append(removed, filepath.Base(filepath.Dir(p))+"/"+filepath.Base(p))
				errs = append(errs, detachLink(l), ignoreNotExist(os.Remove(p)))
			} else if index != 0 {
				strips = true
			}
			_ = l.Close()
		}
		for _, p := range Programs(interfaces) {
			if p.egress != egress {
				strips = true
				continue
			}
			removed = append(removed, fmt.Sprintf("%s at %s", p.name, p.where))
			errs = append(errs, p.detach())
		}
		return errors.Join(errs...)
	}
	err = take(true)
	if strips {
		select {
		case <-time.After(LeaseTime):
		case <-ctx.Done():
			return removed, errors.Join(err, fmt.Errorf("%w: programs that strip what arrives stay; repeat the command",
				context.Cause(ctx)))
		}
	}
	err = errors.Join(err, take(false))
	for _, dir := range dirs {
		for _, role := range roles {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, role)))
		}
		_ = os.Remove(dir) // the directory may have other pins
	}
	return removed, err
}

// pinsIn returns the files of roles in directories of pins.
func pinsIn(dirs, roles []string) (pins []string) {
	for _, dir := range dirs {
		for _, role := range roles {
			files, _ := os.ReadDir(filepath.Join(dir, role)) // no entries if the directory does not exist
			for _, f := range files {
				if !f.IsDir() {
					pins = append(pins, filepath.Join(dir, role, f.Name()))
				}
			}
		}
	}
	return pins
}

// detachLink ends a link also if another process refers to it. A link whose interface is gone is
// detached already.
func detachLink(l link.Link) error {
	d, ok := l.(interface{ Detach() error })
	if !ok {
		return nil // the program ends with its last reference
	}
	if err := d.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}
