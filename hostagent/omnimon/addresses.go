// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
)

// addresses finds the number of a host by an address: open addressing, at most half full.
type addresses struct {
	cells []address
	mask  uint64
	count int
}

type address struct {
	bytes    [16]byte
	number   uint32 // number of the address
	host     uint16
	used, v6 bool
}

// newAddresses returns an error if two hosts have the same address.
func newAddresses(hosts [][]netip.Addr) (addresses, error) {
	if len(hosts) > 1<<16 {
		return addresses{}, fmt.Errorf("%d hosts: at most %d", len(hosts), 1<<16)
	}
	n := 0
	for _, list := range hosts {
		n += len(list)
	}
	size := 1 << bits.Len(uint(2*n+1))
	a := addresses{cells: make([]address, size), mask: uint64(size - 1), count: n}
	n = 0
	for host, list := range hosts {
		for _, ip := range list {
			cell := address{number: uint32(n), host: uint16(host), used: true, v6: ip.Is6()}
			n++
			copy(cell.bytes[:], ip.AsSlice())
			at := a.home(&cell.bytes)
			for ; a.cells[at].used; at = (at + 1) & a.mask {
				if c := &a.cells[at]; c.bytes == cell.bytes && c.v6 == cell.v6 {
					return addresses{}, fmt.Errorf("address %s belongs to hosts %d and %d", ip, c.host, host)
				}
			}
			a.cells[at] = cell
		}
	}
	return a, nil
}

func (a *addresses) home(b *[16]byte) uint64 {
	h := binary.LittleEndian.Uint64(b[:])*0x9e3779b97f4a7c15 ^ binary.LittleEndian.Uint64(b[8:])*0xc2b2ae3d27d4eb4f
	return (h ^ h>>32) & a.mask
}

// find returns an address, or nil if it belongs to no host.
func (a *addresses) find(b *[16]byte, v6 bool) *address {
	for at := a.home(b); a.cells[at].used; at = (at + 1) & a.mask {
		if c := &a.cells[at]; c.bytes == *b && c.v6 == v6 {
			return c
		}
	}
	return nil
}

// lookup works as find, for an address of package netip.
func (a *addresses) lookup(ip netip.Addr) *address {
	var b [16]byte
	copy(b[:], ip.AsSlice())
	return a.find(&b, ip.Is6())
}

// contains reports whether all addresses of o belong to the same hosts in a.
func (a *addresses) contains(o *addresses) bool {
	for i := range o.cells {
		c := &o.cells[i]
		if !c.used {
			continue
		}
		if found := a.find(&c.bytes, c.v6); found == nil || found.host != c.host {
			return false
		}
	}
	return true
}
