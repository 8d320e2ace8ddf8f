// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Loaded is the programs and maps of a role in the kernel, and the views of its maps.
type Loaded struct {
	*ebpf.Collection
	Memory
}

// Load loads the programs and maps of a role, with values for their variables. reduce names the
// settings that a user may reduce if the memory does not suffice.
func Load(spec *ebpf.CollectionSpec, role string, variables map[string]any, opts ebpf.CollectionOptions,
	reduce string) (*Loaded, error) {
	if err := SetVariables(spec, variables); err != nil {
		return nil, err
	}
	Fold(spec)
	Name(spec, role)
	c, err := ebpf.NewCollectionWithOptions(spec, opts)
	if err != nil {
		return nil, Explain(err, reduce)
	}
	return &Loaded{Collection: c}, nil
}

// SetVariables sets variables of programs that are not loaded yet.
func SetVariables(spec *ebpf.CollectionSpec, values map[string]any) error {
	for name, value := range values {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("variable %s: %w", name, err)
		}
	}
	return nil
}

// Close implements Tables.
func (l *Loaded) Close() error {
	l.Unmap()
	l.Collection.Close()
	return nil
}

// Memory is the values of arrays in the memory of this process.
type Memory struct{ mapped [][]byte }

// View maps the values of an array with a name into memory. They are valid until Unmap.
func View[T any](memory *Memory, m *ebpf.Map, name string) ([]T, error) {
	size := int(unsafe.Sizeof(*new(T)))
	if int(m.ValueSize()) != size {
		return nil, fmt.Errorf("map %s has values of %d bytes, expected %d", name, m.ValueSize(), size)
	}
	b, err := Bytes(memory, m, name)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), m.MaxEntries()), nil
}

// Bytes maps the values of an array with a name, of a multiple of 8 bytes each, into memory. They
// are valid until Unmap.
func Bytes(memory *Memory, m *ebpf.Map, name string) ([]byte, error) {
	size := int(m.MaxEntries()) * int(m.ValueSize())
	page := os.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: mmap: %w", name, err)
	}
	memory.mapped = append(memory.mapped, b)
	return b[:size], nil
}

// Unmap ends the use of all views.
func (m *Memory) Unmap() {
	for _, b := range m.mapped {
		_ = unix.Munmap(b)
	}
	m.mapped = nil
}

// Barrier waits for programs.
type Barrier struct{ outer, inner *ebpf.Map }

// NewBarrier returns a barrier.
func NewBarrier() (*Barrier, error) {
	spec := &ebpf.MapSpec{Name: "inner", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	inner, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("map inner: %w", err)
	}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Name: "barrier", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4,
		MaxEntries: 1, InnerMap: spec})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map barrier: %w", err), inner.Close())
	}
	return &Barrier{outer, inner}, nil
}

// Wait returns when every program that runs now has ended. An update of a map of maps returns only
// then, which the kernel guarantees to its users.
func (b *Barrier) Wait() error { return b.outer.Put(uint32(0), b.inner) }

// Close ends the use of the barrier. A nil one is valid.
func (b *Barrier) Close() error {
	if b == nil {
		return nil
	}
	return errors.Join(b.outer.Close(), b.inner.Close())
}

// CRC32Tables fills t with tables of CRC-32 (IEEE), of 256 entries each, for several bytes at a
// time: table k is the state after a byte and k bytes of zero.
func CRC32Tables(t []uint32) {
	copy(t, crc32.IEEETable[:])
	for i := 256; i < len(t); i++ {
		v := t[i-256]
		t[i] = v>>8 ^ t[v&0xff]
	}
}

const logLines = 12 // last lines of the verifier's log, which end with the reason

// Explain adds the end of the verifier's log to an error of loading programs, or the capabilities
// that are missing, or what to reduce if the memory does not suffice.
func Explain(err error, reduce string) error {
	var ve *ebpf.VerifierError
	switch {
	case errors.As(err, &ve):
		tail := ve.Log[max(0, len(ve.Log)-logLines):]
		return fmt.Errorf("the kernel refuses %w\n%s", err, strings.Join(tail, "\n"))
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: the agent needs the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON", err)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: not enough memory for the maps: reduce %s", err, reduce)
	}
	return err
}
