// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package pluginhost

import (
	"errors"
	"syscall"
)

// confiner limits no memory and adopts no orphans: these are functions of Linux.
type confiner struct{}

func newConfiner() (confiner, error) {
	return confiner{}, errors.New("memory limits of plugins need Linux")
}

func (confiner) sweep(string) {}

func (confiner) confine(string, int64) *confinement { return &confinement{} }

func reapOrphans() (stop func()) { return func() {} }

// confinement gives a process its own session. There is no parent-death signal; the end of its
// standard input shows a plugin that the collector has ended.
type confinement struct{ limit int64 }

func (*confinement) start(a *syscall.SysProcAttr, f func() (int, error)) error {
	a.Setsid = true
	_, err := f()
	return err
}

func (*confinement) method() MemoryMethod { return MemoryUnlimited }

func (*confinement) end() (outOfMemory bool, left []int) { return false, nil }

func (*confinement) release() {}

// waitUnreaped has no portable form.
func waitUnreaped(int) bool { return false }
