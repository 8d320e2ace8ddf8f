// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lookAgain bounds the delay of noticing a change about which the kernel sends no message.
const lookAgain = time.Second

// watch calls a function after each change of an interface, and once a second.
type watch struct {
	socket *os.File
	done   sync.WaitGroup
}

func newWatch(changed func()) (*watch, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err == nil {
		if err = unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}); err != nil {
			_ = unix.Close(s)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("changes of interfaces: %w", err)
	}
	w := &watch{socket: os.NewFile(uintptr(s), "netlink")}
	w.done.Go(func() {
		message := make([]byte, 1<<16)
		for {
			_ = w.socket.SetReadDeadline(time.Now().Add(lookAgain)) // without a deadline the read fails
			// The interface is compared after every message, because messages may be lost when there are
			// many.
			if _, err := w.socket.Read(message); errors.Is(err, os.ErrClosed) {
				return
			}
			changed()
		}
	})
	return w, nil
}

// index returns the index of the interface with a name, in the network namespace in which the watch
// began.
func (w *watch) index(name string) (int, error) {
	r, err := unix.NewIfreq(name)
	if err == nil {
		var socket syscall.RawConn
		if socket, err = w.socket.SyscallConn(); err == nil {
			var refused error
			err = socket.Control(func(fd uintptr) { refused = unix.IoctlIfreq(int(fd), unix.SIOCGIFINDEX, r) })
			err = cmp.Or(err, refused)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return int(r.Uint32()), nil
}

// close returns when the function will not be called again.
func (w *watch) close() {
	_ = w.socket.Close()
	w.done.Wait()
}
