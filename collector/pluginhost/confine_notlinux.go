// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package pluginhost

import (
	"errors"
	"syscall"
)

// confiner does nothing: memory limits and the adoption of orphans need Linux.
type confiner struct{}

func newConfiner() (confiner, error) {
	return confiner{}, errors.New("memory limits of plugins need Linux")
}

func (confiner) sweep(string) {}

func (confiner) confine(string, int64) *confinement { return &confinement{} }

func reapOrphans() (stop func()) { return func() {} }

// confinement starts a process in its own session. Other systems than Linux have no parent-death
// signal; a plugin sees that the collector has ended when its standard input ends.
type confinement struct{ limit int64 }

func (*confinement) start(a *syscall.SysProcAttr, f func() (int, error)) error {
	a.Setsid = true
	_, err := f()
	return err
}

func (*confinement) method() MemoryMethod { return MemoryUnlimited }

func (*confinement) end() (outOfMemory bool, left []int) { return false, nil }

func (*confinement) release() {}

// waitUnreaped always fails: systems other than Linux offer no common way.
func waitUnreaped(int) bool { return false }
